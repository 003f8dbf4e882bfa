"""``RebuilderProtocol``: what the rules that rebuild values use of the rebuilder."""

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
        """Make ``obj`` by ``display``, or by ``empty`` and ``fill`` when it contains itself (or ``early``)."""

    def assign(self, value: ast.expr, hint: str) -> ast.expr: ...

    def constant(self, value: object, hint: str) -> ast.expr: ...

    def expr(self, obj: object) -> ast.expr:
        """A name or literal for ``obj``; its construction has been emitted before."""

    def remember(self, obj: object, made: ast.expr) -> None: ...
