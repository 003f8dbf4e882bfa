"""Instructions that run in plain Python, between two graphs."""

from __future__ import annotations

from typing import Any, NoReturn

from fxstack_capture.breaks import graph_break
from fxstack_capture.interpreter.frame import Frame


def unsupported(_frame: Frame, what: Any) -> NoReturn:
    """Break the graph. The operand names the construct that cannot be interpreted."""
    raise graph_break("unsupported-bytecode", what)
