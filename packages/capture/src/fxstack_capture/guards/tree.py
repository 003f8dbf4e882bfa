"""Compile guard records into one native tree.

``compile_guards(guards, code)`` returns a ``native.Tree``. Its ``meta`` is a tuple of the guards in the order
of their numbers, with weak references to the program's objects (``Guard.weaken``). Each step of a source
becomes one node. Sources with a common prefix share its nodes. Within a node, cheap checks precede expensive
checks, and cheap subtrees precede expensive subtrees.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from types import CodeType
from typing import Any

from fxstack_capture import native, sources
from fxstack_capture.guards.accesses import lower_root, lower_step
from fxstack_capture.guards.records import Guard, Relation
from fxstack_capture.guards.tensor_build import TENSOR_CHECKS
from fxstack_capture.guards.weak_references import WeakSources

_first = itemgetter(0)


@dataclass(slots=True)
class _Node:
    """The node of one source under construction: its access, the checks of its value, and its child nodes."""

    access: tuple[str, object]
    """The kind and the argument of the native access."""
    guard: int
    """The number of the first guard that needs the node. If the access fails, this guard has failed."""
    register: int = -1
    """The register that receives the value. -1 if no relation and no input reads the value."""
    checks: list[tuple[int, str, int, tuple[object, ...]]] = field(default_factory=list)
    """The checks: each has its cost, its native kind, the number of its guard, and its arguments."""
    children: list[_Node] = field(default_factory=list)
    """The nodes that read from the value of this node."""


class _Builder:
    """The nodes, relations and registers of one tree under construction. ``add`` adds one guard."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.nodes: dict[sources.Source | None, _Node] = {}
        self.roots: list[_Node] = []
        self.late: list[_Node] = []
        self.relations: list[tuple[int, str, int, tuple[object, ...]]] = []
        self.registers = 0
        self.guard = 0

    def node(self, source: sources.Source | None) -> _Node:
        """Return the node of a source, or of torch's global state for None. Missing nodes on the path are
        made.
        """
        node = self.nodes.get(source)
        if node is None:
            node = self.nodes[source] = self._make(source)
        return node

    def _make(self, source: sources.Source | None) -> _Node:
        """Make the node of a source. Attach it to the node at which the source begins; without one, it is a
        root.
        """
        if source is None or source.base is None:
            node = _Node(lower_root(source, self.code), self.guard)
            self.roots.append(node)
            return node
        if isinstance(source, sources.ItemAt):
            return self._item_at(source)
        base, access = lower_step(source)
        node = _Node(access, self.guard)
        self.node(base).children.append(node)
        return node

    def _item_at(self, source: sources.ItemAt) -> _Node:
        """Make the node of an item whose index is read from another source.

        The node is a root that reads the registers of the container and of the index. It comes after all
        nodes that fill registers.
        """
        registers = self.register(source.of), self.register(source.at)
        node = _Node(("ItemAt", registers), self.guard)
        self.late.append(node)
        return node

    def register(self, source: sources.Source) -> int:
        """Return the register that holds the value of a source when relations are checked.

        The first request for a source assigns a register.
        """
        node = self.node(source)
        if node.register < 0:
            node.register = self.registers
            self.registers += 1
        return node.register

    def add(self, index: int, guard: Guard) -> None:
        """Add the check or the relation of the guard with number ``index``. Missing nodes are made."""
        self.guard = index
        check = guard.check
        if isinstance(check, Relation):
            arguments = check.relate(guard.source, self.register)
            self.relations.append((check.cost, type(check).__name__, index, arguments))
            return
        source, kind, arguments = check.lower(guard.source)
        self.node(source).checks.append((check.cost, kind, index, arguments))


def _spec(node: _Node) -> tuple[int, tuple[Any, ...]]:
    """Return the cost of checking a node, and the node as a tuple for build_node in tree.c."""
    checks = sorted(node.checks, key=_first)
    children = sorted(map(_spec, node.children), key=_first)
    cost = 1 + sum(map(_first, checks)) + sum(map(_first, children))
    lowered = tuple([check[1:] for check in checks])
    return cost, (
        *(*node.access, node.guard, node.register),
        *(lowered, tuple([child for _cost, child in children])),
    )


def compile_guards(
    guards: Iterable[Guard],
    code: CodeType,
    inputs: tuple[sources.Source, ...] = (),
    known: tuple[Guard, ...] = (),
) -> Any:
    """Return the native tree of these guards for frames of ``code``.

    If all guards hold, the check also collects the values at ``inputs`` for the entry (``native.Entry``).
    ``known``: the ``meta`` of a tree of the first guards.

    Raises:
        TypeError, ValueError: a record cannot be checked natively. The message names the record.
    """
    TENSOR_CHECKS.poll()
    builder = _Builder(code)
    numbered = tuple(guards)
    for index, guard in enumerate(numbered):
        try:
            builder.add(index, guard)
        except (KeyError, TypeError, ValueError) as error:
            what = f"cannot compile the guard {type(guard.check).__name__} on {guard.source.name}: {error}"
            raise type(error)(what) from error
    outputs = tuple(builder.register(source) for source in inputs)
    roots = tuple(
        spec for _cost, spec in (*sorted(map(_spec, builder.roots), key=_first), *map(_spec, builder.late))
    )
    relations = tuple(relation[1:] for relation in sorted(builder.relations, key=_first))
    weak = WeakSources()
    meta = (*known, *[guard.weaken(weak) for guard in numbered[len(known) :]])
    return native.Tree(roots, relations, builder.registers, len(numbered), meta, outputs)
