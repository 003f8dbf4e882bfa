"""Python source generated for the case at hand: nothing is tested at run time that is known at compile time."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(slots=True)
class Source:
    """Generated statements and the objects that they name."""

    names: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    depth: int = 1

    def add(self, line: str, **names: Any) -> None:
        self.lines.append("    " * self.depth + line)
        self.names.update(names)

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Statements added inside are the body of a ``try``; what handles it is for the caller to add."""
        self.add("try:")
        self.depth += 1
        yield
        self.depth -= 1

    def build(self, parameters: str = "*args") -> Callable[..., Any]:
        """Return the function of these statements; its text is its attribute ``__fxstack_source__``."""
        text = "\n".join([f"def call({parameters}):", *self.lines])
        exec(compile(text, "<fxstack runtime wrapper>", "exec"), self.names)  # noqa: S102 - text made here
        self.names["call"].__fxstack_source__ = text
        call: Callable[..., Any] = self.names["call"]
        return call
