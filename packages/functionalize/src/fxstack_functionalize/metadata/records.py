"""Records of every input and output of a captured graph, known after one trace."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from fxstack_functionalize.metadata.replay import AliasInfo, AliasSource


@dataclass(frozen=True, slots=True)
class Relayout:
    """A call of an in-place operator that changes a tensor's metadata but not its values (``t_``)."""

    method: str
    """The name of the method of a tensor, for example ``t_``."""
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]
    """(name, value) of each keyword argument."""
    grad_mode: bool
    """Whether grad mode was on."""
    version_bumps: int
    """The number that the call adds to the version counter."""

    @property
    def changes_layout(self) -> bool:
        """Whether the call changes size or strides, rather than the autograd history."""
        return self.method not in {"detach_", "requires_grad_"}


@dataclass(frozen=True, slots=True)
class InputInfo:
    """One input of the captured graph.

    ``requires_grad`` and ``is_leaf`` are properties of the example input. ``mutates_data``: the graph changes
    its values. ``version_bumps``: the number that eager adds to its version counter. ``grad_visible``:
    autograd sees the change, so the input has a new ``grad_fn`` afterwards. ``relayouts``: calls that change
    its size, strides or history; the caller repeats them in this order around the compiled graph.
    """

    name: str
    is_tensor: bool
    """False for a symbol or another number."""
    requires_grad: bool = False
    is_leaf: bool = True
    mutates_data: bool = False
    grad_visible: bool = False
    version_bumps: int = 0
    relayouts: tuple[Relayout, ...] = ()


class OutputSource(StrEnum):
    """Where the caller gets a user output from."""

    VALUE = "value"
    """The flat graph output ``index``."""
    CONSTANT = "constant"
    """The value ``constant``."""
    INPUT = "input"
    """The input ``index``, the same object."""
    ALIAS = "alias"
    """The alias ``index`` of ``GraphInfo.aliases``; the caller makes it."""


@dataclass(frozen=True, slots=True)
class OutputInfo:
    """One user output. ``requires_grad``: eager's flag. ``is_leaf``: the graph makes it a new leaf."""

    source: OutputSource
    index: int = -1
    """The index in the list that ``source`` names; -1 for a constant."""
    requires_grad: bool = False
    is_tensor: bool = True
    constant: Any = None
    """The value of an output that is no tensor and that is equal in all calls."""
    is_leaf: bool = False


@dataclass(frozen=True, slots=True)
class GraphInfo:
    """All facts that the runtime wrapper needs.

    ``mutated``: inputs whose new values are the first flat graph outputs, in order. ``in_graph``: inputs that
    the graph itself writes back. The forward has ``output_count`` flat outputs: mutated inputs, one per user
    output, bases of views. ``differentiable``: positions of the flat outputs that have tangents.
    """

    inputs: tuple[InputInfo, ...]
    """One record for each input of the captured graph, in order."""
    outputs: tuple[OutputInfo, ...]
    """One record for each user output, in order."""
    aliases: tuple[AliasInfo, ...]
    """The views that the caller makes, each after its base."""
    custom_views: tuple[tuple[int, AliasInfo], ...]
    """Flat outputs that are views of an input or flat output, made by a custom ``autograd.Function``."""
    mutated: tuple[int, ...]
    in_graph: tuple[int, ...]
    output_count: int
    differentiable: tuple[int, ...]
    grad_inputs: tuple[int, ...]
    """Numbers of the inputs that require a gradient, in the order of the joint graph's gradients."""
    strides: tuple[tuple[Any, ...] | None, ...]
    """Eager's strides of each flat output; None for a flat output that is not a user output."""
    grad_mode: bool
    """Whether grad mode was on when the graph was traced."""
    autocast: bool
    """Whether autocast was on. The graph contains the casts, so it must run with autocast off."""
    sequential: tuple[tuple[int, ...], ...] = ()
    """Sets of flat outputs that share saved tensors (``sequential_backward.ResultHistories.atoms``)."""
    sources: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """For each of ``grad_inputs`` the differentiable flat outputs that reach it in the autograd graph."""
    cut: tuple[int, ...] = ()
    """The members of ``grad_inputs`` without gradient: outputs must not inherit their history."""

    @property
    def wanted(self) -> tuple[int, ...]:
        """Return the members of ``grad_inputs`` that get a gradient."""
        return tuple(index for index in self.grad_inputs if index not in self.cut)

    def memory_of(self, output: OutputInfo, position: int) -> tuple[AliasSource, int] | None:
        """Return the input or flat output that owns an output's memory; None if the flat output ``position``
        itself owns it.
        """
        if output.source is OutputSource.INPUT:
            return AliasSource.INPUT, output.index
        if output.source is OutputSource.VALUE and output.index != position:
            return AliasSource.OUTPUT, output.index
        if output.source is not OutputSource.ALIAS:
            return None
        alias = self.aliases[output.index]
        while alias.source is AliasSource.ALIAS:
            alias = self.aliases[alias.index]
        return alias.source, alias.index

    def shifted(self, by: int) -> GraphInfo:
        """Return the record of the same graph with ``by`` further flat outputs in front."""
        outputs = tuple(
            replace(output, index=output.index + by) if output.source is OutputSource.VALUE else output
            for output in self.outputs
        )
        aliases = tuple(alias.shifted(by) for alias in self.aliases)
        custom = tuple((at + by, alias.shifted(by)) for at, alias in self.custom_views)
        return replace(self, outputs=outputs, aliases=aliases, custom_views=custom)
