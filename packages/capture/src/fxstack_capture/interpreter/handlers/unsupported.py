"""Constructs that are executed in plain Python, between two graphs."""

from __future__ import annotations

from typing import Any, NoReturn

from fxstack_capture.breaks import graph_break
from fxstack_capture.interpreter.frame import Frame


def unsupported(_frame: Frame, what: Any) -> NoReturn:
    """The operand says what cannot be interpreted."""
    raise graph_break("unsupported-bytecode", what)
