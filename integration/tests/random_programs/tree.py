"""A program as a tree of statements, so that it can be printed with a probe inside and cut down piece by piece."""

from __future__ import annotations

from dataclasses import dataclass, field

INDENT = "    "


@dataclass
class Node:
    """One line; or clauses (``if``, ``else``, ``try``, ...), each a line with statements below it."""

    text: str = ""
    clauses: list[tuple[str, list[Node]]] = field(default_factory=list)

    def lines(self, level: int, cursor: list[Node] | None = None) -> list[str]:
        if not self.clauses:
            return [INDENT * level + line for line in self.text.splitlines()]
        found = []
        for header, body in self.clauses:
            found.append(INDENT * level + header)
            found += body_lines(body, level + 1, cursor) or [INDENT * (level + 1) + "pass"]
        return found


PROBE = "PROBE(locals())"


def body_lines(body: list[Node], level: int, cursor: list[Node] | None = None) -> list[str]:
    """Source lines of ``body``, with a probe at the end of the body that is ``cursor``."""
    found = [line for node in body for line in node.lines(level, cursor)]
    return found + [INDENT * level + PROBE] if body is cursor else found


def bodies(body: list[Node]) -> list[list[Node]]:
    """``body`` and all bodies inside of it, the outer ones first."""
    inner = [b for node in body for _, clause in node.clauses for b in bodies(clause)]
    return [body, *inner]
