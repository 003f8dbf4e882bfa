"""Shape contracts: which sizes of a call's arguments are symbolic, in the notation of ``torch.export``.

A contract is a ``dynamic_shapes`` specification. It lists the arguments by name or by position, with the same
nesting as the arguments. For each tensor it has a dictionary or a list of dimensions (see ``dims``).
``ShapeContract`` is a specification that has been checked as far as possible without arguments. ``bind``
compares it with the arguments of one call. ``contract_checks`` checks the assumptions of the trace.
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

# Limits: a contract applies to the frame of the given function up to its first graph break. After the break,
# sizes become symbolic when they change. Sizes of 0 and 1 under a named Dim get their own graph; export needs
# an example of 2 or more.


class ShapeContractError(ConstraintViolationError):
    """Sizes violate an agreement: a mark or ``dynamic_shapes``. The call or the program is the cause."""


@dataclass(frozen=True, slots=True)
class Solved:
    """The value of a named dimension in one call. ``_check_named`` computes it from the sizes of the
    arguments.
    """

    root: Root
    """The named dimension with its range."""
    value: int
    """The value of the name in this call. For example, the formula ``2*b`` and a size of 8 give 4."""
    seen: str
    """The size from which the value was computed, for messages: ``x.size(0)``."""
    low: int
    """The lowest value that can share a graph with other values. Below it, some size is 0 or 1."""

    @property
    def apart(self) -> bool:
        """Whether this call's value is below ``low``, so that it needs its own graph."""
        return self.value < self.low


@dataclass(slots=True)
class Bound:
    """A contract bound to the arguments of one call, as the trace uses it.

    The contract has rules for the dimensions of tensors, and rules for integers.
    """

    tensors: dict[int, tuple[DimRule, ...]] = field(default_factory=dict)
    """The rules of the dimensions of each tensor, by the id of the tensor."""
    numbers: dict[Source, Hint | None] = field(default_factory=dict)
    """The rules of integers, by source. None stands for an integer that stays constant."""
    roots: dict[str, Solved] = field(default_factory=dict)
    """The values of the named dimensions in this call, by name."""
    names: dict[Source, str] = field(default_factory=dict)
    """The names that the user gives to the tensors, by source.

    In a call of a module, the frame has other names, because the frame has ``args`` and ``kwargs``.
    """
    alive: list[torch.Tensor] = field(default_factory=list)
    """Keeps the tensors alive, because ``tensors`` is keyed by their ids."""


@dataclass(frozen=True, slots=True)
class _Path:
    """The path to a value in the arguments: a name for messages, and the source if the tracer has one."""

    name: str
    """The path in the program's notation, for messages: ``x[0]``."""
    source: Source | None
    """The source of the value, or None if no source describes the path."""

    def item(self, index: int) -> _Path:
        """Return the path to the item ``index`` of this value."""
        return _Path(f"{self.name}[{index}]", self.source and Item(self.source, index))

    def key(self, key: object) -> _Path:
        """Return the path to the value of ``key`` in this dictionary."""
        return _Path(f"{self.name}[{key!r}]", self.source and Key(self.source, key))

    def attribute(self, name: str) -> _Path:
        """Return the path to an attribute of this value."""
        return _Path(f"{self.name}.{name}", self.source and InstanceAttr(self.source, name))


class ShapeContract:
    """A ``dynamic_shapes`` specification, as the user passes it to ``optimize`` or ``export``.

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
            _walk(spec, value, _Path(name, source), bound)
        return bound

    def _by_name(self, names: list[str]) -> Mapping[str, Any]:
        """Return the specifications of the arguments by name.

        ``names`` are the names of the arguments, in order. Raises ShapeContractError if the specification has
        unknown names or too many entries.
        """
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
    """Raise ValueError if one name stands for dimensions with different ranges."""
    root_of: dict[str, Root] = {}
    for dim in _dims_in(spec):
        rule = dim_rule(dim, "")
        if isinstance(rule, Named) and root_of.setdefault(rule.root.name, rule.root) != rule.root:
            first, second = root_of[rule.root.name], rule.root
            raise ValueError(
                f"dynamic_shapes: found different definitions {first} and {second} of one dimension"
            )


def _dims_in(spec: object) -> Iterator[Any]:
    """Yield the entries for dimensions in a specification.

    Invalid entries are included. They raise an error when the contract is compared with the arguments.
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


def _walk(spec: object, value: object, path: _Path, bound: Bound) -> None:
    """Compare one part of the specification with ``value``, and add the rules to ``bound``.

    Recurses into containers.
    """
    if isinstance(value, torch.Tensor):
        _note(value, _tensor_rules(spec, value, path), path, bound)
    elif type(value) is int:
        _note_number(spec, value, path, bound)
    elif (parts := _parts(value, path)) is not None:
        for part, item, part_path in _pair_with_spec(spec, parts, path):
            _walk(part, item, part_path, bound)
    elif spec is not None:
        raise ShapeContractError(
            f"dynamic_shapes has {spec!r} for {path.name}, which is a {type(value).__qualname__} (expected None)."
        )


def _parts(value: object, path: _Path) -> dict[object, tuple[object, _Path]] | None:
    """Return the parts of a container, key or index -> (value, path).

    Return None if ``value`` is not a container.
    """
    if isinstance(value, dict):
        return {key: (item, path.key(key)) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return {index: (item, path.item(index)) for index, item in enumerate(value)}
    node = _pytree.SUPPORTED_NODES.get(type(value))
    if node is not None:
        flat = enumerate(node.flatten_fn(value)[0])
        return {index: (item, _Path(f"{path.name}[{index}]", None)) for index, item in flat}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value)]
        return {n: (getattr(value, n), path.attribute(n)) for n in names}
    return None


def _pair_with_spec(
    spec: object, parts: dict[object, tuple[object, _Path]], path: _Path
) -> Iterator[tuple[Any, object, _Path]]:
    """Yield (specification, value, path) for each part of a container.

    Raises ShapeContractError if the specification and the container have different structures.
    """
    if spec is None:
        entries: dict[object, Any] = dict.fromkeys(parts)
    elif isinstance(spec, Mapping):
        entries = dict(spec)
    elif isinstance(spec, (tuple, list)):
        entries = dict(enumerate(spec))
    else:
        entries = {None: spec}
    if entries.keys() != parts.keys():
        raise ShapeContractError(
            f"dynamic_shapes does not have the structure of the arguments: {path.name} has "
            f"{_entries(parts)}, but its specification {_entries(entries)}."
        )
    return ((entries[key], *parts[key]) for key in parts)


def _entries(parts: Mapping[object, object]) -> str:
    """Return the keys of a container as text for a message."""
    return ", ".join(map(repr, parts)) if parts else "nothing"


def _tensor_rules(spec: object, tensor: torch.Tensor, path: _Path) -> tuple[DimRule, ...]:
    """Return the rule of each dimension of a tensor. ``spec`` is a list or a dictionary."""
    rank: int = tensor.dim()
    if spec is None:
        return (None,) * rank
    if isinstance(spec, Mapping):
        return _by_dim(spec, rank, path)
    if isinstance(spec, Sequence) and not isinstance(spec, str):
        if len(spec) != rank:
            raise ShapeContractError(
                f"dynamic_shapes has {len(spec)} dimensions for {path.name}, which has {rank} (its shape is "
                f"{tuple(tensor.shape)})."
            )
        return tuple(dim_rule(dim, f" at {path.name}") for dim in spec)
    raise TypeError(
        f"dynamic_shapes has {spec!r} for the tensor {path.name}: expected a list of dimensions or a dict from "
        "indices to dimensions"
    )


def _by_dim(spec: Mapping[Any, Any], rank: int, path: _Path) -> tuple[DimRule, ...]:
    """Return the rules of ``spec``, a dictionary by dimension, for a tensor with ``rank`` dimensions.

    Dimensions that ``spec`` omits are constants.
    """
    rules: list[DimRule] = [None] * rank
    for dim, entry in spec.items():
        if type(dim) is not int or not -rank <= dim < rank:
            raise ShapeContractError(
                f"dynamic_shapes has an entry for dimension {dim!r} of {path.name}, which has {rank} dimensions."
            )
        rules[dim] = dim_rule(entry, f" at {path.name}[{dim}]")
    return tuple(rules)


def _note(tensor: torch.Tensor, rules: tuple[DimRule, ...], path: _Path, bound: Bound) -> None:
    """Add the rules of a tensor to ``bound`` and check its sizes.

    Raises ShapeContractError if the same tensor is an earlier argument with different rules.
    """
    if bound.tensors.setdefault(id(tensor), rules) != rules:
        raise ShapeContractError(
            f"dynamic_shapes has different entries for one tensor, which is passed as {path.name} and as an earlier"
            " argument.\nfix: give both arguments the same entry."
        )
    bound.alive.append(tensor)
    if path.source is not None:
        bound.names[path.source] = path.name
    for dim, rule in enumerate(rules):
        _check_size(rule, tensor.size(dim), f"{path.name}.size({dim})", bound)


def _note_number(spec: object, value: int, path: _Path, bound: Bound) -> None:
    """Add the rule of an integer to ``bound`` and check its value."""
    rule = dim_rule(spec, f" at {path.name}")
    if isinstance(rule, Named):
        raise ShapeContractError(
            f"dynamic_shapes has the named dimension {rule.text} for {path.name}, which is a number.\n"
            "fix: use Dim.AUTO or Dim.DYNAMIC."
        )
    _check_size(rule, value, path.name, bound)
    if path.source is not None:
        bound.numbers[path.source] = rule if isinstance(rule, Hint) else None
    elif isinstance(rule, Hint):
        raise ShapeContractError(f"dynamic_shapes cannot make the number {path.name} symbolic.")


def _check_size(rule: DimRule, size: int, name: str, bound: Bound) -> None:
    """Raise ShapeContractError if a size or number violates its rule.

    ``name`` names the size or number in the message (``x.size(0)``).
    """
    if isinstance(rule, Exactly) and size != rule.value:
        raise ShapeContractError(f"{name} is {size}, but its shape contract requires {rule.value}.")
    if isinstance(rule, Hint) and size not in rule.bounds:
        raise ShapeContractError(f"{name} is {size}, but its shape contract requires {rule}.")
    if isinstance(rule, Named):
        _check_named(rule, size, name, bound)


def _check_named(rule: Named, size: int, name: str, bound: Bound) -> None:
    """Solve the formula of a named dimension for its name, and record the result in ``bound``.

    Raises ShapeContractError in three cases: there is no solution, the solution is out of range, or an
    earlier size gave the name another value.
    """
    root, value = rule.root, rule.solve(size)
    if value is None:
        raise ShapeContractError(
            f"{name} is {size}, but its shape contract requires {rule.text} with an integer {root.name}."
        )
    if value not in root.bounds:
        derivation = "" if rule.text == root.name else f", which is {rule.text} with {root.name} = {value}"
        raise ShapeContractError(f"{name} is {size}{derivation}, but its shape contract requires {root}.")
    earlier = bound.roots.get(root.name)
    if earlier is not None and earlier.value != value:
        raise ShapeContractError(
            f"{name} is {size}, which requires {root.name} = {value}, but {earlier.seen} requires"
            f" {root.name} = {earlier.value}."
        )
    # ``low`` must be valid for every size with this name, and each size may have its own formula.
    low = max(rule.lowest, earlier.low if earlier else max(root.bounds.min or 0, 2))
    first_size = earlier.seen if earlier else name
    bound.roots[root.name] = Solved(root, value, first_size, low)


def demand_general(bound: Bound | None) -> None:
    """Raise ShapeContractError if the call has sizes that are never symbolic.

    ``capture_whole`` (``export``) calls this, because its one graph must serve all sizes. ``bound`` is None
    without a contract.
    """
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
