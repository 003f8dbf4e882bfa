"""Rules of the annotations of ``fxstack_capture``."""

from __future__ import annotations

from typing import Any, NoReturn

from fxstack_capture import annotations as marks
from fxstack_capture import breaks
from fxstack_capture.calls.table import RuleTable
from fxstack_capture.trace.state import Trace

RULES = RuleTable()


@RULES.rule(marks.graph_break)
def break_here(_trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
    raise breaks.graph_break("user-break", _by_program(*args, **kwargs))


@RULES.rule(marks.skip_frame)
def skip_here(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
    by = _by_program(*args, **kwargs)
    raise breaks.graph_break("user-skip", by, whole=trace.interp.current_frame())


def _by_program(msg: object = "") -> str:
    return f"by the program: {msg}" if msg else "by the program"


@RULES.rule(marks.is_compiling)
def _is_compiling(_trace: Trace, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> bool:
    return True
