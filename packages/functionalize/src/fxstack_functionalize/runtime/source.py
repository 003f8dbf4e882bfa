"""Python source generated for the case at hand: nothing is tested at run time that is known at compile time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(slots=True)
class Source:
    """Generated statements and the objects that they name."""

    names: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    depth: int = 1

    def add(self, line: str, **names: Any) -> None:
        self.lines.append("    " * self.depth + line)
        self.names.update(names)

    def build(self, parameters: str = "*args") -> Callable[..., Any]:
        """Return the function of these statements; its text is its attribute ``__fxstack_source__``."""
        text = "\n".join([f"def call({parameters}):", *self.lines])
        exec(compile(text, "<fxstack runtime wrapper>", "exec"), self.names)  # noqa: S102 - text made here
        self.names["call"].__fxstack_source__ = text
        call: Callable[..., Any] = self.names["call"]
        return call
