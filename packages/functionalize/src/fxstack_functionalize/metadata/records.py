"""What is known of every input and output of a captured graph after it was traced once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from fxstack_functionalize.metadata.replay import AliasInfo, AliasSource


@dataclass(frozen=True, slots=True)
class Relayout:
    """An in-place operator that changes what a tensor looks like, not its values (``t_``): how to do it again."""

    method: str
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]
    grad_mode: bool
    """Whether grad mode was on."""
    bumps: int
    """By how much it raises the version counter."""

    @property
    def moves(self) -> bool:
        """Whether it changes size or strides, rather than the history."""
        return self.method not in {"detach_", "requires_grad_"}


@dataclass(frozen=True, slots=True)
class InputInfo:
    """One input of the captured graph.

    ``requires_grad`` and ``is_leaf`` are those of the example. ``mutates_data`` says that its values change;
    ``version_bumps`` by how much eager would have raised its version counter. ``grad_visible`` says that autograd
    sees the change: afterwards the input has a new ``grad_fn``. ``relayouts`` change its size and strides, in this order,
    which the caller does again when the graph has run.
    """

    name: str
    is_tensor: bool
    requires_grad: bool = False
    is_leaf: bool = True
    mutates_data: bool = False
    grad_visible: bool = False
    version_bumps: int = 0
    relayouts: tuple[Relayout, ...] = ()


class OutputSource(StrEnum):
    """Where the caller finds a user output."""

    VALUE = "value"
    """Flat graph output ``index``."""
    CONSTANT = "constant"
    """Always ``constant``."""
    INPUT = "input"
    """Input ``index`` itself, the same object."""
    ALIAS = "alias"
    """Alias ``index`` of ``GraphInfo.aliases``, made by the caller."""


@dataclass(frozen=True, slots=True)
class OutputInfo:
    """One user output. ``requires_grad`` is what eager's output would say; ``is_leaf`` says that the graph makes a leaf of it."""

    source: OutputSource
    index: int = -1
    requires_grad: bool = False
    is_tensor: bool = True
    constant: Any = None
    is_leaf: bool = False


@dataclass(frozen=True, slots=True)
class GraphInfo:
    """Everything the runtime wrapper needs to know.

    ``mutated`` lists the inputs whose new values are the first flat graph outputs, in order; ``in_graph`` those that
    the graph itself copies back. ``output_count`` flat outputs follow from the forward (mutated inputs, one per
    user output, then the bases of views); ``differentiable`` are the positions among them that have tangents.
    """

    inputs: tuple[InputInfo, ...]
    outputs: tuple[OutputInfo, ...]
    aliases: tuple[AliasInfo, ...]
    custom_views: tuple[tuple[int, AliasInfo], ...]
    """Flat outputs that are views of an input (or flat output) with the gradient of a custom function."""
    mutated: tuple[int, ...]
    in_graph: tuple[int, ...]
    output_count: int
    differentiable: tuple[int, ...]
    grad_inputs: tuple[int, ...]
    strides: tuple[tuple[Any, ...] | None, ...]
    """Eager's strides of each flat output; None where it is no user output."""
    grad_mode: bool
    """Whether grad mode was on when the graph was traced."""
    autocast: bool
    """Whether autocast was on: the graph holds the casts, so it must run with autocast off."""
    sequential: tuple[tuple[int, ...], ...] = ()
    """Sets of flat outputs of which one backward frees what the others' need; empty if each frees all (see ``sequential``)."""
    components: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()
    """Groups of flat outputs that come from different histories, each with the inputs that it depends on; or none."""
    sources: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """For each of ``grad_inputs`` the differentiable flat outputs that lead to it in autograd's graph."""
    cut: tuple[int, ...] = ()
    """Those of ``grad_inputs`` that get no gradient: their history must not become that of the outputs."""

    @property
    def wanted(self) -> tuple[int, ...]:
        """Return those of ``grad_inputs`` that get one."""
        return tuple(index for index in self.grad_inputs if index not in self.cut)

    def memory_of(self, seen: OutputInfo, position: int) -> tuple[AliasSource, int] | None:
        """Return the input or flat output that a user output shares memory with; None if it owns flat ``position``."""
        if seen.source is OutputSource.INPUT:
            return AliasSource.INPUT, seen.index
        if seen.source is OutputSource.VALUE and seen.index != position:
            return AliasSource.OUTPUT, seen.index
        if seen.source is not OutputSource.ALIAS:
            return None
        alias = self.aliases[seen.index]
        while alias.source is AliasSource.ALIAS:
            alias = self.aliases[alias.index]
        return alias.source, alias.index

    def shifted(self, by: int) -> GraphInfo:
        """Return the record for a graph with ``by`` more flat outputs in front."""
        outputs = tuple(
            replace(seen, index=seen.index + by) if seen.source is OutputSource.VALUE else seen
            for seen in self.outputs
        )
        aliases = tuple(alias.shifted(by) for alias in self.aliases)
        custom = tuple((at + by, alias.shifted(by)) for at, alias in self.custom_views)
        return replace(self, outputs=outputs, aliases=aliases, custom_views=custom)
