"""Generate Python source for one graph, so that a call tests nothing that is known at compile time.

A compiled graph runs with autograd and autocast off, whatever the state of the caller: ``without_views`` and
``without_grad`` put statements into such a region.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fxstack_functionalize import torch_compat


@dataclass(slots=True)
class Source:
    """Generated statements, and the objects that the statements name."""

    names: dict[str, Any] = field(default_factory=dict)
    """The objects that the statements name, by name."""
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    """The number of indentations of the next statement."""

    def add(self, line: str, **names: Any) -> None:
        """Add a statement at the present depth. ``names``: objects that it names."""
        self.lines.append("    " * self.depth + line)
        self.names.update(names)

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Put statements added inside into a ``try`` body. The caller adds ``except`` or ``finally``."""
        self.add("try:")
        self.depth += 1
        yield
        self.depth -= 1

    def build(self, parameters: str = "*args") -> Callable[..., Any]:
        """Return the function of these statements. Its attribute ``__fxstack_source__`` is the text."""
        text = "\n".join([f"def call({parameters}):", *self.lines])
        exec(compile(text, "<fxstack runtime wrapper>", "exec"), self.names)  # noqa: S102 - text made here
        self.names["call"].__fxstack_source__ = text
        call: Callable[..., Any] = self.names["call"]
        return call


_VIEW_KEY = torch_compat.DispatchKey.ADInplaceOrView
"""The dispatch key for views and versions. Autograd must not see results of a compiled graph as views."""


@contextmanager
def without_views(source: Source) -> Iterator[None]:
    """Exclude the view and version bookkeeping from the statements that are added inside.

    torch's guard object costs a microsecond a call; setting and restoring the key costs less than half.
    """
    source.add(
        "excluded = is_excluded(view_key)",
        is_excluded=torch_compat.dispatch_tls_is_dispatch_key_excluded,
        view_key=_VIEW_KEY,
    )
    source.add("exclude(view_key, True)", exclude=torch_compat.dispatch_tls_set_dispatch_key_excluded)
    with source.trying():
        yield
    source.add("finally:")
    source.add("    exclude(view_key, excluded)")


@contextmanager
def without_grad(source: Source) -> Iterator[None]:
    """Turn grad mode off for the statements that are added inside. The caller's grad mode is on."""
    source.add("set_grad(False)", set_grad=torch_compat.set_grad_enabled)
    with source.trying():
        yield
    source.add("finally:")
    source.add("    set_grad(True)")
