"""Shape contracts: which sizes of a call's arguments are symbolic, in the notation of ``torch.export``.

A contract is a ``dynamic_shapes`` specification. It lists the arguments by name or by position, with the same
nesting as the arguments. For every tensor it holds a dictionary or a list of dimensions (see ``dims``).
``ShapeContract`` is the specification, checked as far as possible without arguments. ``bind`` compares it
with the arguments of one call. ``contract_checks`` checks the assumptions of the trace.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

from fxstack_capture.shapes.dims import DimRule, Exactly, Hint, Named, Root, dim_rule
from fxstack_capture.sources import InstanceAttr, Item, Key, Source
from fxstack_capture.torch_compat import pytree as _pytree

# Limits: a contract applies to the frame of the given function up to its first graph break. Sizes after the
# break become symbolic when they change. Sizes of 0 and 1 under a named Dim get their own graph; export needs
# an example of 2 or more.


class ShapeContractError(ConstraintViolationError):
    """A call or the program violates the agreed sizes, which marks or ``dynamic_shapes`` declare."""


@dataclass(frozen=True, slots=True)
class Solved:
    """The value of a named dimension in one call.

    ``low`` is the lowest value that shares a graph with other values. Below ``low``, some size is 0 or 1.
    """

    root: Root
    value: int
    seen: str
    low: int

    @property
    def apart(self) -> bool:
        """Whether the present value needs its own graph."""
        return self.value < self.low


@dataclass(slots=True)
class Bound:
    """A contract bound to the arguments of one call.

    It holds the rules of the dimensions of each tensor (by ``id``), and the rules of integers.
    """

    tensors: dict[int, tuple[DimRule, ...]] = field(default_factory=dict)
    numbers: dict[Source, Hint | None] = field(default_factory=dict)
    roots: dict[str, Solved] = field(default_factory=dict)
    names: dict[Source, str] = field(default_factory=dict)
    """The names that the user gives to the tensors.

    They differ from the frame's names in a call of a module, which passes ``args``.
    """
    alive: list[torch.Tensor] = field(default_factory=list)
    """Keeps the tensors alive, because their ids are keys of ``tensors``."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a value in the arguments: a name for messages, and the source if the tracer has one."""

    name: str
    source: Source | None

    def item(self, index: int) -> _Place:
        return _Place(f"{self.name}[{index}]", self.source and Item(self.source, index))

    def key(self, key: object) -> _Place:
        return _Place(f"{self.name}[{key!r}]", self.source and Key(self.source, key))

    def attribute(self, name: str) -> _Place:
        return _Place(f"{self.name}.{name}", self.source and InstanceAttr(self.source, name))


class ShapeContract:
    """A ``dynamic_shapes`` specification.

    Raises:
        TypeError: ``spec`` is not a specification.
        ValueError: one name stands for dimensions with different ranges.
    """

    def __init__(self, spec: object) -> None:
        if not isinstance(spec, (Mapping, tuple, list)):
            raise TypeError(
                f"dynamic_shapes: expected a dict by argument name or a tuple in the order of the arguments, got {spec!r}"
            )
        self.spec = spec
        _check_names(spec)

    def bind(self, arguments: Mapping[str, tuple[object, Source | None]]) -> Bound:
        """Compare the contract with a call. ``arguments`` maps parameter names to values and their sources.

        Raises:
            ShapeContractError: the contract does not describe the arguments, or their sizes violate it.
        """
        bound = Bound()
        for name, spec in self._by_name(list(arguments)).items():
            value, source = arguments[name]
            _walk(spec, value, _Place(name, source), bound)
        return bound

    def _by_name(self, names: list[str]) -> Mapping[str, Any]:
        if isinstance(self.spec, Mapping):
            unknown = [name for name in self.spec if name not in names]
            if unknown:
                raise ShapeContractError(
                    f"dynamic_shapes names the arguments {unknown}, but the function has {names}.\n"
                    "fix: use the parameters' names as keys, or a tuple in the order of the arguments."
                )
            return self.spec
        if len(self.spec) > len(names):
            raise ShapeContractError(
                f"dynamic_shapes has {len(self.spec)} entries, but the call has {len(names)} arguments ({', '.join(names)})."
            )
        return dict(zip(names, self.spec, strict=False))


# --- the specification alone ---------------------------------------------------------------------


def _check_names(spec: object) -> None:
    known: dict[str, Root] = {}
    for dim in _dims_in(spec):
        rule = dim_rule(dim, "")
        if isinstance(rule, Named) and known.setdefault(rule.root.name, rule.root) != rule.root:
            first, second = known[rule.root.name], rule.root
            raise ValueError(
                f"dynamic_shapes: found different definitions {first} and {second} of one dimension"
            )


def _dims_in(spec: object) -> Iterator[Any]:
    """Yield the entries of a specification.

    An invalid entry is yielded too. It raises an error when the contract is compared with the arguments.
    """
    if isinstance(spec, Mapping):
        for item in spec.values():
            yield from _dims_in(item)
    elif isinstance(spec, (tuple, list)):
        for item in spec:
            yield from _dims_in(item)
    else:
        yield spec


# --- beside the arguments ------------------------------------------------------------------------


def _walk(spec: object, value: object, place: _Place, bound: Bound) -> None:
    if isinstance(value, torch.Tensor):
        _note(value, _tensor_rules(spec, value, place), place, bound)
    elif type(value) is int:
        _note_number(spec, value, place, bound)
    elif (parts := _parts(value, place)) is not None:
        for part, item, where in _paired(spec, parts, place):
            _walk(part, item, where, bound)
    elif spec is not None:
        raise ShapeContractError(
            f"dynamic_shapes has {spec!r} for {place.name}, which is a {type(value).__qualname__} (expected None)."
        )


def _parts(value: object, place: _Place) -> dict[object, tuple[object, _Place]] | None:
    """Return the items of a container by key or index, with their places.

    Return None if ``value`` is not a container.
    """
    if isinstance(value, dict):
        return {key: (item, place.key(key)) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return {index: (item, place.item(index)) for index, item in enumerate(value)}
    node = _pytree.SUPPORTED_NODES.get(type(value))
    if node is not None:
        flat = enumerate(node.flatten_fn(value)[0])
        return {index: (item, _Place(f"{place.name}[{index}]", None)) for index, item in flat}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value)]
        return {n: (getattr(value, n), place.attribute(n)) for n in names}
    return None


def _paired(
    spec: object, parts: dict[object, tuple[object, _Place]], place: _Place
) -> Iterator[tuple[Any, object, _Place]]:
    """Return every part with its specification."""
    if spec is None:
        given: dict[object, Any] = dict.fromkeys(parts)
    elif isinstance(spec, Mapping):
        given = dict(spec)
    elif isinstance(spec, (tuple, list)):
        given = dict(enumerate(spec))
    else:
        given = {None: spec}
    if given.keys() != parts.keys():
        raise ShapeContractError(
            f"dynamic_shapes does not have the structure of the arguments: {place.name} has "
            f"{_entries(parts)}, but its specification {_entries(given)}."
        )
    return ((given[key], *parts[key]) for key in parts)


def _entries(parts: Mapping[object, object]) -> str:
    return ", ".join(map(repr, parts)) if parts else "nothing"


def _tensor_rules(spec: object, tensor: torch.Tensor, place: _Place) -> tuple[DimRule, ...]:
    rank: int = tensor.dim()
    if spec is None:
        return (None,) * rank
    if isinstance(spec, Mapping):
        return _by_dim(spec, rank, place)
    if isinstance(spec, Sequence) and not isinstance(spec, str):
        if len(spec) != rank:
            raise ShapeContractError(
                f"dynamic_shapes has {len(spec)} dimensions for {place.name}, which has {rank} (its shape is "
                f"{tuple(tensor.shape)})."
            )
        return tuple(dim_rule(dim, f" at {place.name}") for dim in spec)
    raise TypeError(
        f"dynamic_shapes has {spec!r} for the tensor {place.name}: expected a list of dimensions or a dict from "
        "indices to dimensions"
    )


def _by_dim(spec: Mapping[Any, Any], rank: int, place: _Place) -> tuple[DimRule, ...]:
    rules: list[DimRule] = [None] * rank
    for dim, entry in spec.items():
        if type(dim) is not int or not -rank <= dim < rank:
            raise ShapeContractError(
                f"dynamic_shapes has an entry for dimension {dim!r} of {place.name}, which has {rank} dimensions."
            )
        rules[dim] = dim_rule(entry, f" at {place.name}[{dim}]")
    return tuple(rules)


def _note(tensor: torch.Tensor, rules: tuple[DimRule, ...], place: _Place, bound: Bound) -> None:
    if bound.tensors.setdefault(id(tensor), rules) != rules:
        raise ShapeContractError(
            f"dynamic_shapes has different entries for one tensor, which is passed as {place.name} and as an earlier"
            " argument.\nfix: give both arguments the same entry."
        )
    bound.alive.append(tensor)
    if place.source is not None:
        bound.names[place.source] = place.name
    for dim, rule in enumerate(rules):
        _check_size(rule, tensor.size(dim), f"{place.name}.size({dim})", bound)


def _note_number(spec: object, value: int, place: _Place, bound: Bound) -> None:
    rule = dim_rule(spec, f" at {place.name}")
    if isinstance(rule, Named):
        raise ShapeContractError(
            f"dynamic_shapes has the named dimension {rule.text} for {place.name}, which is a number.\n"
            "fix: use Dim.AUTO or Dim.DYNAMIC."
        )
    _check_size(rule, value, place.name, bound)
    if place.source is not None:
        bound.numbers[place.source] = rule if isinstance(rule, Hint) else None
    elif isinstance(rule, Hint):
        raise ShapeContractError(f"dynamic_shapes cannot make the number {place.name} symbolic.")


def _check_size(rule: DimRule, size: int, name: str, bound: Bound) -> None:
    if isinstance(rule, Exactly) and size != rule.value:
        raise ShapeContractError(f"{name} is {size}, but its shape contract requires {rule.value}.")
    if isinstance(rule, Hint) and size not in rule.bounds:
        raise ShapeContractError(f"{name} is {size}, but its shape contract requires {rule}.")
    if isinstance(rule, Named):
        _check_named(rule, size, name, bound)


def _check_named(rule: Named, size: int, name: str, bound: Bound) -> None:
    root, value = rule.root, rule.solve(size)
    if value is None:
        raise ShapeContractError(
            f"{name} is {size}, but its shape contract requires {rule.text} with an integer {root.name}."
        )
    if value not in root.bounds:
        also = "" if rule.text == root.name else f", which is {rule.text} with {root.name} = {value}"
        raise ShapeContractError(f"{name} is {size}{also}, but its shape contract requires {root}.")
    before = bound.roots.get(root.name)
    if before is not None and before.value != value:
        raise ShapeContractError(
            f"{name} is {size}, which requires {root.name} = {value}, but {before.seen} requires"
            f" {root.name} = {before.value}."
        )
    low = max(rule.lowest, before.low if before else max(root.bounds.min or 0, 2))
    seen = before.seen if before else name
    bound.roots[root.name] = Solved(root, value, seen, low)


def demand_general(bound: Bound | None) -> None:
    """Raise if the call has sizes that are never symbolic. The caller needs one graph for all sizes."""
    if bound is None:
        return
    for name, solved in bound.roots.items():
        if solved.apart:
            raise ShapeContractError(
                f"{solved.seen} makes {name} = {solved.value}, and sizes of 0 and 1 are always specialised, because "
                f"broadcasting depends on them.\nfix: export with an example where {name} is at least {solved.low}."
            )
    for tensor, rules in zip(bound.alive, (bound.tensors[id(t)] for t in bound.alive), strict=True):
        for dim, rule in enumerate(rules):
            if isinstance(rule, Hint) and rule.strict and tensor.shape[dim] < 2:
                raise ShapeContractError(
                    f"a dimension with {rule} is {tensor.shape[dim]}, and sizes of 0 and 1 are always specialised, because "
                    "broadcasting depends on them.\nfix: export with a larger example."
                )
