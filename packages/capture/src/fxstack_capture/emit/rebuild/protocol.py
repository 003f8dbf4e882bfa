"""``RebuilderProtocol``: the part of the rebuilder that the rules use."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Protocol

from fxstack_capture.emit.builder import Builder
from fxstack_capture.emit.loads import Loads
from fxstack_capture.trace.state import Trace


class RebuilderProtocol(Protocol):
    @property
    def trace(self) -> Trace: ...

    @property
    def builder(self) -> Builder: ...

    @property
    def early(self) -> bool: ...

    @property
    def loads(self) -> Loads: ...

    def mutable(
        self,
        obj: object,
        display: Callable[[], ast.expr],
        empty: Callable[[], ast.expr],
        fill: Callable[[ast.expr], None],
    ) -> ast.expr:
        """Make ``obj`` by ``display``.

        If ``obj`` contains itself, or if ``early``, use ``empty`` and ``fill``.
        """

    def assign(self, value: ast.expr, hint: str) -> ast.expr: ...

    def constant(self, value: object, hint: str) -> ast.expr: ...

    def expr(self, obj: object) -> ast.expr:
        """Return a name or literal for ``obj``, after emitting its construction."""

    def remember(self, obj: object, made: ast.expr) -> None: ...
