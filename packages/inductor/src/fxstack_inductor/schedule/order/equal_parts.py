"""Equal parts of a program: independent sets of tensors that compute the same from other inputs.

The step of an optimizer is such a program: each parameter has a part. The schedule of one part serves for all, with other
names of tensors, so the time of a compilation hardly depends on the number of parameters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import TypeVar

from fxstack_inductor.ir.nodes import (
    Body,
    Call,
    Computed,
    Const,
    Extern,
    ExternCall,
    Index,
    Indirect,
    Input,
    Layout,
    Masked,
    Node,
    Pointwise,
    Read,
    Reduction,
)
from fxstack_inductor.lower.program import HostCall, Mutation, Program
from fxstack_inductor.schedule.fusion.inlining import base_of, is_range_call
from fxstack_inductor.schedule.fusion.inplace_scatter import rename_buffers
from fxstack_inductor.schedule.steps import KernelStep, Step

# Limits: a part that computes indices, reads the result of an ATen call, is read by a call or is returned has a schedule of
# its own. So has a part of a GPU program, where several kernels are launched together.

T = TypeVar("T", bound=Node)
MIN_COPIES = 4
"""The number of equal parts from which on they share a schedule."""


class _UnlikeError(Exception):
    """A tensor that must not be part of a repeated schedule."""


@dataclass(frozen=True, slots=True)
class Part:
    """The tensors of a part in the order of the program, and the inputs that the part alone reads or changes."""

    nodes: tuple[Computed, ...]
    inputs: tuple[Input, ...]
    mutations: tuple[Mutation, ...]

    @property
    def tensors(self) -> Iterator[Node]:
        return chain(self.nodes, self.inputs)


@dataclass(frozen=True, slots=True)
class EqualParts:
    """A part that is scheduled, and the parts that repeat its schedule."""

    first: Part
    copies: tuple[Part, ...]
    interleaved: bool
    """Whether the graph computes each tensor for all parts before it computes the next; else it computes part after part."""


def equal_parts(program: Program) -> list[EqualParts]:
    """Return the groups of at least ``MIN_COPIES`` equal parts of ``program``."""
    if program.many_threads or any(map(is_range_call, program.steps)):
        return []
    position = {id(step): place for place, step in enumerate(program.steps)}
    alike: dict[Hashable, list[Part]] = defaultdict(list)
    for nodes, mutations in _connected(program):
        try:
            key, part = _describe(nodes, mutations)
        except _UnlikeError:
            continue
        alike[key].append(part)
    groups = [parts for parts in alike.values() if len(parts) >= MIN_COPIES]
    return [
        EqualParts(first, tuple(copies), position[id(first.nodes[-1])] > position[id(copies[0].nodes[0])])
        for first, *copies in groups
    ]


def without_copies(program: Program, groups: Sequence[EqualParts]) -> Program:
    """Return ``program`` with the first part of each group, without the parts that repeat its schedule."""
    dropped = {id(node) for group in groups for part in group.copies for node in part.nodes}
    mutated = {id(m.target) for group in groups for part in group.copies for m in part.mutations}
    return replace(
        program,
        steps=[step for step in program.steps if id(step) not in dropped],
        mutations=[m for m in program.mutations if id(m.target) not in mutated],
    )


def with_copies(
    steps: Sequence[Step], mutations: Sequence[Mutation], groups: Sequence[EqualParts]
) -> tuple[tuple[Step, ...], tuple[Mutation, ...]]:
    """Return the schedule of all parts: the steps and the mutations of the first parts, repeated for the others."""
    # Kernels of other parts may read a number in common with a group.
    mutated = {id(mutation.target) for group in groups for mutation in group.first.mutations}
    group_of = {
        id(node): group for group in groups for node in group.first.tensors if not _is_common(node, mutated)
    }
    owners = [_owner(step, group_of) for step in steps]
    last = {id(owner): place for place, owner in enumerate(owners) if owner is not None}
    renamings = {id(group): [_Renaming(group.first, part) for part in group.copies] for group in groups}
    repeated: list[Step] = []
    held: dict[int, list[KernelStep]] = defaultdict(list)
    for place, (step, owner) in enumerate(zip(steps, owners, strict=True)):
        repeated.append(_numbered(step, len(repeated)))
        if owner is None or not isinstance(step, KernelStep):
            continue
        held[id(owner)].append(step)
        if owner.interleaved or last[id(owner)] == place:
            own = held.pop(id(owner))
            for names, each in product(renamings[id(owner)], own):
                repeated.append(names.step(each, len(repeated)))
    copied = list(mutations)
    for mutation in mutations:
        group = group_of.get(id(mutation.target))
        copied += [] if group is None else [names.mutation(mutation) for names in renamings[id(group)]]
    return tuple(repeated), tuple(copied)


def _owner(step: Step, group_of: Mapping[int, EqualParts]) -> EqualParts | None:
    """Return the group whose first part ``step`` computes."""
    if not isinstance(step, KernelStep):
        return None
    tensors = (*step.stored, *step.reads)
    return next((group_of[id(node)] for node in tensors if id(node) in group_of), None)


def _numbered(step: Step, number: int) -> Step:
    """Return a launch under the name that its place gives."""
    if not isinstance(step, KernelStep) or step.kernel.name == f"kernel_{number}":
        return step
    return replace(step, kernel=replace(step.kernel, name=f"kernel_{number}"))


class _Renaming:
    """The tensors of one part in place of the tensors of another."""

    def __init__(self, first: Part, other: Part) -> None:
        self._nodes = {id(a): b for a, b in zip(first.tensors, other.tensors, strict=True)}
        self._names = {a.name: b.name for a, b in zip(first.tensors, other.tensors, strict=True)}
        self._origins = {a.origin: b.origin for a, b in zip(first.nodes, other.nodes, strict=True)}

    def _node(self, node: T) -> T:
        found = self._nodes.get(id(node), node)
        assert isinstance(found, type(node))
        return found

    def step(self, step: KernelStep, number: int) -> KernelStep:
        """Return the same launch for the other part, under the name that the place ``number`` gives."""
        origins = tuple([self._origins.get(origin, origin) for origin in step.kernel.origins])
        kernel = rename_buffers(step.kernel, self._names, origins=origins, name=f"kernel_{number}")
        return KernelStep(kernel, tuple(map(self._node, step.stored)), tuple(map(self._node, step.reads)))

    def mutation(self, mutation: Mutation) -> Mutation:
        """Return the mutation of the other part's input."""
        return Mutation(self._node(mutation.target), self._node(mutation.value))


def _connected(program: Program) -> Iterator[tuple[list[Computed], list[Mutation]]]:
    """Yield the sets of tensors that no other tensor of the program reads, with their mutations.

    Tensors that read a common input belong together: one kernel may compute both. A number may be common, if it stays.
    """
    sets = _Sets()
    mutated = {id(m.target) for m in program.mutations}
    for computed in (step for step in program.steps if isinstance(step, Computed)):
        for base in (base_of(read.node) for read in computed.reads):
            if not _is_common(base, mutated):
                sets.join(computed, base)
    for mutation in program.mutations:
        sets.join(mutation.target, base_of(mutation.value))
    calls = (step for step in program.steps if isinstance(step, (ExternCall, HostCall)))
    used = [node for step in calls for node in step.reads]
    used += [value for value in program.outputs if isinstance(value, Node)]
    unlike = {sets.root(base_of(node)) for node in used}
    nodes: dict[int, list[Computed]] = defaultdict(list)
    mutations: dict[int, list[Mutation]] = defaultdict(list)
    for step in program.steps:
        if isinstance(step, Computed):
            nodes[sets.root(step)].append(step)
    for mutation in program.mutations:
        mutations[sets.root(mutation.target)].append(mutation)
    yield from ((found, mutations[root]) for root, found in nodes.items() if root not in unlike)


def _is_common(node: Node, mutated: set[int]) -> bool:
    """Whether parts may read ``node`` in common: a tensor of one number, which no kernel of the program changes."""
    return not isinstance(node, Computed) and node.shape == () and id(node) not in mutated


class _Sets:
    """Disjoint sets of tensors, named by the identity of one member."""

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}

    def root(self, node: Node) -> int:
        """Return the name of the set of ``node``."""
        name = id(node)
        while (parent := self._parent.get(name, name)) != name:
            self._parent[name] = name = self._parent.get(parent, parent)
        return name

    def join(self, left: Node, right: Node) -> None:
        """Make the sets of both tensors one."""
        self._parent[self.root(right)] = self.root(left)


def _describe(nodes: Sequence[Computed], mutations: Sequence[Mutation]) -> tuple[Hashable, Part]:
    """Return what equal parts have in common, and the part.

    Raises:
        _UnlikeError: a tensor has no description.
    """
    places: dict[int, int] = {id(node): number for number, node in enumerate(nodes)}
    inputs: dict[int, Input] = {}

    def place(node: Node) -> Hashable:
        """Return the number of a tensor of the part, after the description of an input that is met first here."""
        number = places.get(id(node))
        if number is not None:
            return number
        if isinstance(node, Extern) and node.shape == ():
            return "extern", id(node)
        if not isinstance(node, Input):
            raise _UnlikeError
        inputs[id(node)] = node
        places[id(node)] = len(places)
        return "input", _layout(node.layout), node.delta

    key: list[Hashable] = []
    for node in nodes:
        if type(node) is Reduction and not node.template:
            key.append((node.op, node.ranges))
        elif type(node) is not Pointwise:
            raise _UnlikeError
        parts: dict[int, int] = {}
        key += [_layout(node.layout), node.comment]
        _describe_body(node.body, place, parts, key)
    for mutation in mutations:
        key.append(("mutation", place(mutation.target), place(mutation.value)))
    return tuple(key), Part(tuple(nodes), tuple(inputs.values()), tuple(mutations))


def _layout(layout: Layout) -> Hashable:
    return layout.shape, layout.stride, layout.dtype, layout.device


def _describe_body(
    body: Body, place: Callable[[Node], Hashable], parts: dict[int, int], key: list[Hashable]
) -> int:
    """Append the description of an expression to ``key``, and return its number; a shared part is described once."""
    known = parts.get(id(body))
    if known is not None:
        return known
    form: Hashable
    match body:
        case Call(op, args, dtype):
            form = op, tuple([_describe_body(arg, place, parts, key) for arg in args]), dtype
        case Read(node, coords):
            if any(isinstance(coord, Indirect) for coord in coords):
                raise _UnlikeError
            form = "read", place(node), coords
        case Const(value, dtype):
            form = "constant", type(value), repr(value), dtype
        case Index(expr, dtype):
            form = "index", expr, dtype
        case Masked(mask, inner, other):
            form = "masked", tuple([_describe_body(part, place, parts, key) for part in (mask, inner, other)])
    key.append(form)
    parts[id(body)] = number = len(parts)
    return number
