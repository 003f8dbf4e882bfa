"""The parts of a random program: functions of statements, which may define functions of their own, and their text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Statement:
    """One line, after the functions that it uses. It assigns a variable that exists already, so it can be left out."""

    text: str
    functions: list[Function] = field(default_factory=list)


@dataclass(slots=True)
class Function:
    """A function of a program: its parameters, the lines that unpack them, its statements and its result."""

    name: str
    parameters: str
    unpacking: list[str]
    statements: list[Statement]
    result: str

    def text(self, indent: str = "") -> str:
        """The source, with all functions inside."""
        inside = indent + "    "
        lines = [f"{indent}def {self.name}({self.parameters}):"]
        lines += [inside + line for line in self.unpacking]
        for statement in self.statements:
            lines += [function.text(inside) for function in statement.functions]
            lines.append(inside + statement.text)
        lines.append(f"{inside}return {self.result}")
        return "\n".join(lines)

    def bodies(self) -> Iterator[list[Statement]]:
        """The statements of this function and of all functions inside, outer ones first."""
        yield self.statements
        for statement in self.statements:
            for function in statement.functions:
                yield from function.bodies()

    def depth(self) -> int:
        """How deep operators are nested."""
        inner = [function.depth() + 1 for s in self.statements for function in s.functions]
        return max(inner, default=0)
