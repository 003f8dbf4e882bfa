"""``cache_info`` and ``cache_clear`` of ``functools.lru_cache`` functions break the graph.

The counts include the real calls, which run only after the graph.
"""

from __future__ import annotations

import functools
from typing import Any

from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.table import RuleTable
from fxstack_capture.trace.state import Trace

RULES: RuleTable = RuleTable()
_Wrapper: Any = functools._lru_cache_wrapper


@RULES.rule(_Wrapper.cache_info, _Wrapper.cache_clear)
def _of_the_cache(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    raise graph_break("side-effect-call", f"the cache of {args[0].__qualname__}")
