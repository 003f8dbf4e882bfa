"""Compilation of regular expressions: what depends on nothing but the text, though ``re`` keeps a cache of it.

The cache is filled by the call that is made while tracing; what it holds decides nothing, so it is not guarded.
"""

from __future__ import annotations

import re
from typing import Any

from fxstack_capture.callers import calls_program
from fxstack_capture.calls.table import RuleTable
from fxstack_capture.trace.state import Trace

RULES: RuleTable = RuleTable()

_COMPILE: Any = vars(re)["_compile"]


@RULES.rule(_COMPILE)
@calls_program
def _compile(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kwargs or len(args) != 2 or not _is_plain(*args):
        return trace.interp.call_function(_COMPILE, args, kwargs)
    return _COMPILE(*args)


def _is_plain(pattern: object, flags: object) -> bool:
    """Whether nothing of the program's runs and nothing is printed. Flags may be of classes that ``re`` keeps for itself."""
    if type(pattern) not in (str, bytes, re.Pattern) or not isinstance(flags, int):
        return False
    return type(flags).__module__ in ("builtins", "re") and not int(flags) & re.DEBUG
