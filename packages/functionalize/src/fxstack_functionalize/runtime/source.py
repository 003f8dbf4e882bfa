"""Generate Python source for one graph, so that a call tests nothing that is known at compile time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Source:
    """Generated statements, and the objects that the statements name."""

    names: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    depth: int = 1

    def add(self, line: str, **names: Any) -> None:
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
