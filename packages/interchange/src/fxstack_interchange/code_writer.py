"""Write generated source code line by line, indented by the blocks around a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass
class CodeWriter:
    """The lines of a function body. Writers of a language derive from this class."""

    INDENT: ClassVar[str] = "    "
    OPEN: ClassVar[str] = ""
    """The text after the head of a block; empty for Python, where the caller's heads end with a colon."""
    CLOSE: ClassVar[str] = ""
    """The line that ends a block; empty for Python, where the indentation ends it."""

    lines: list[str] = field(default_factory=list, init=False)
    depth: int = field(default=1, init=False)
    """The number of blocks around the next line, the function's body included."""

    def line(self, text: str) -> None:
        """Write a line at the present depth."""
        self.lines.append(self.INDENT * self.depth + text)

    def write_lines(self, lines: Iterable[str]) -> None:
        """Write each line at the present depth."""
        for text in lines:
            self.line(text)

    def open(self, head: str) -> None:
        """Begin a block that another method ends. For a block that one method begins and ends, use ``block``."""
        self.line(head + self.OPEN)
        self.depth += 1

    def close(self, count: int = 1) -> None:
        """End the ``count`` innermost blocks."""
        for _ in range(count):
            self.depth -= 1
            self.write_lines([self.CLOSE] if self.CLOSE else [])

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write ``head`` and, inside its block, the lines that the ``with`` statement writes."""
        self.open(head)
        yield
        self.close()
