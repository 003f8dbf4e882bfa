"""What ``fxstack_capture``'s own annotations mean while tracing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from fxstack_capture import annotations as marks
from fxstack_capture import breaks
from fxstack_capture.calls.table import RuleTable

if TYPE_CHECKING:
    from fxstack_capture.trace import Trace

RULES = RuleTable()


@RULES.rule(marks.graph_break)
def _graph_break(_trace: Trace, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> NoReturn:
    raise breaks.graph_break("user-break", "by the program")


@RULES.rule(marks.is_compiling)
def _is_compiling(_trace: Trace, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> bool:
    return True
