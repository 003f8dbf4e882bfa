"""Compile regular expressions. The result depends only on the text, although ``re`` caches results.

The call while tracing fills the cache of ``re``. The contents of the cache do not influence results, so they
are not guarded.
"""

from __future__ import annotations

import re
from typing import Any

from fxstack_capture.callers import calls_program
from fxstack_capture.calls.rules import RULES
from fxstack_capture.trace.state import Args, Kwargs, Trace

_COMPILE: Any = vars(re)["_compile"]


@RULES.rule(_COMPILE)
@calls_program
def _compile(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Compile a constant pattern while tracing."""
    if kwargs or len(args) != 2 or not _is_plain(*args):
        return trace.interp.call_function(_COMPILE, args, kwargs)
    return _COMPILE(*args)


def _is_plain(pattern: object, flags: object) -> bool:
    """Whether the compilation runs no code of the program and prints nothing.

    Flags may have private classes of ``re``.
    """
    if type(pattern) not in (str, bytes, re.Pattern) or not isinstance(flags, int):
        return False
    return type(flags).__module__ in ("builtins", "re") and not int(flags) & re.DEBUG
