"""Check that a call's inputs share memory as the traced inputs did, if the graph changes an input.

Otherwise the compiled graph could write into a tensor and read the old value through another tensor. Such a
call runs the captured graph in eager. Graphs that change no input need no check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import torch

from fxstack_functionalize.aliasing.synthetic_bases import element_span, static_span
from fxstack_functionalize.runtime.forward.mutation import new_leaves, relaid_inputs
from fxstack_functionalize.trace import Shell
from fxstack_functionalize.tracer.inputs import Captured, CapturedInput
from fxstack_functionalize.tracer.symbols import make_filler
from fxstack_functionalize.views.differentiable_bases import find_duplicates, is_plain_view, root_of

Span = tuple[int, int, bool]
"""The start of a tensor, the number of bytes that it spans, and whether it is changed."""


def sharing_guard(shell: Shell) -> Callable[[Sequence[Any]], bool] | None:
    """Return a predicate on the arguments: whether the compiled graph may run. None if it always may."""
    inputs = shell.captured.inputs
    changed = {i for i, info_of_input in enumerate(shell.info.inputs) if info_of_input.mutates_data}
    relaid, leaves = relaid_inputs(shell), new_leaves(shell)
    if not changed and not relaid:
        return None
    groups = _groups(shell)
    grouped = {index for group in groups for index in group.members}
    bytes_of = {
        index: _byte_length(spec.fake)
        for index, spec in enumerate(inputs)
        if isinstance(spec.fake, torch.Tensor) and index not in grouped and spec.members is None
    }
    # One tensor shares memory with no other input.
    if len(bytes_of) + len(groups) < 2 and not grouped and not relaid:
        return None
    if not relaid and not leaves and not groups and None not in bytes_of.values():
        return _by_addresses([(index, size or 0, index in changed) for index, size in bytes_of.items()])
    fill_places = make_filler(shell.captured, [(group.offsets, group.length) for group in groups])

    def same_sharing(args: Sequence[Any]) -> bool:
        """Whether the arguments share memory only as in the trace, so that the compiled graph may run."""
        if any(sum(other is args[index] for other in args) > 1 for index in relaid):
            return False  # the change would show in both arguments
        if leaves and any(
            isinstance(other, torch.Tensor) and other._base is args[index]
            for index in leaves
            for other in args
        ):
            return False  # a view of a leaf gets a gradient too
        spans = [
            (args[index].data_ptr(), _length_of(args[index], length), index in changed)
            for index, length in bytes_of.items()
        ]
        if not groups:
            return not _overlap(spans)
        as_traced = all(
            group.is_as_traced(args, offsets, length, spans)
            for group, (offsets, length) in zip(groups, fill_places(args), strict=True)
        )
        return as_traced and not _overlap(spans + [group.span(args) for group in groups])

    return same_sharing


def _by_addresses(inputs: Sequence[Span]) -> Callable[[Sequence[Any]], bool]:
    """Return the check of inputs of fixed sizes (position, bytes, whether changed).

    Only the addresses differ between calls, so the check runs if an address differs from the last call.
    """
    (indices, *lengths_and_changes), last = zip(*inputs, strict=True), ()
    tensors_of = itemgetter(*indices)  # several: a tensor alone needs no check
    data_ptr = torch.Tensor.data_ptr

    def same_sharing(args: Sequence[Any]) -> bool:
        """Whether no two arguments overlap. Addresses that equal the last accepted ones need no comparison."""
        nonlocal last
        addresses = tuple(map(data_ptr, tensors_of(args)))
        if addresses == last:
            return True
        if _overlap([*zip(addresses, *lengths_and_changes, strict=True)]):
            return False
        last = addresses
        return True

    return same_sharing


@dataclass(frozen=True, slots=True)
class _Group:
    """Inputs that are views of one base.

    ``offsets`` of the inputs and ``length`` of the base count elements of ``size`` bytes.
    """

    members: tuple[int, ...]
    """Numbers of the inputs."""
    offsets: tuple[Any, ...]
    length: Any
    size: int
    root: _Root | None
    """The common root of the members; None if the base is a flat storage."""

    def is_as_traced(
        self, args: Sequence[Any], offsets: Sequence[int], elements: int, others: Sequence[Span]
    ) -> bool:
        """Whether the members lie as traced, and no other changed tensor overlaps their base."""
        if self.root is not None and not self.root.is_as_traced(args):
            return False
        starts = [
            args[index].data_ptr() - offset * self.size
            for index, offset in zip(self.members, offsets, strict=True)
        ]
        first, length = starts[0], elements * self.size
        return all(start == first for start in starts) and not any(
            changed and start < first + length and first < start + other_length
            for start, other_length, changed in others
        )

    def span(self, args: Sequence[Any]) -> Span:
        """Return the memory that the members span, as one range."""
        starts = [args[index].data_ptr() for index in self.members]
        ends = [
            start + _length_of(args[index], None) for start, index in zip(starts, self.members, strict=True)
        ]
        return min(starts), max(ends) - min(starts), True


class _Root:
    """The tensor of which the members of a group are views."""

    def __init__(self, captured: Captured, spec: CapturedInput) -> None:
        fake, self._members = spec.fake, spec.members or ()
        self._same = find_duplicates([other.fake for other in captured.inputs], self._members)
        self._kind = (fake.dtype, fake.requires_grad, fake.is_leaf)
        layout = (tuple(fake.shape), tuple(fake.stride()), fake.storage_offset())
        self._place = make_filler(captured, layout)

    def is_as_traced(self, args: Sequence[Any]) -> bool:
        """Whether the members are views of one tensor with the traced metadata."""
        members = [args[index] for index in self._members]
        root = root_of(members[0])
        return (
            all(root_of(member) is root and is_plain_view(member) for member in members)
            and all(args[index] is args[earlier] for index, earlier in self._same)
            and (root.dtype, root.requires_grad, root.is_leaf) == self._kind
            and (root.shape, root.stride(), root.storage_offset()) == self._place(args)
        )


def _groups(shell: Shell) -> list[_Group]:
    """Return the groups of inputs that the trace merged into bases."""
    fakes = [spec.fake for spec in shell.captured.inputs]
    return [
        _Group(
            spec.members,
            tuple(fakes[index].storage_offset() for index in spec.members),
            element_span(spec.fake)[1] if spec.is_root else spec.fake.shape[0],
            spec.fake.element_size(),
            _Root(shell.captured, spec) if spec.is_root else None,
        )
        for spec in shell.captured.inputs
        if spec.members is not None
    ]


def _length_of(tensor: torch.Tensor, fixed_length: int | None) -> int:
    """Return the number of bytes that the tensor spans: ``fixed_length`` if it is known at compile time."""
    length = _byte_length(tensor) if fixed_length is None else fixed_length
    assert length is not None
    return length


def _overlap(spans: list[Span]) -> bool:
    """Whether a changed range overlaps another range."""
    element_span, reached_by_changed = -1, False
    for start, length, changed in sorted(spans):
        if length == 0:
            continue
        if start < element_span and (reached_by_changed or changed):
            return True
        if start >= element_span:
            reached_by_changed = False
        reached_by_changed |= changed
        element_span = max(element_span, start + length)
    return False


def _byte_length(fake: torch.Tensor) -> int | None:
    """Return the number of bytes that the tensor spans; None if it is symbolic."""
    if fake.layout is not torch.strided:
        return 0
    span = static_span(fake)
    return None if span is None else (span[1] - span[0]) * fake.element_size()


def base_maker(shell: Shell) -> Callable[[Sequence[Any]], list[torch.Tensor]] | None:
    """Return a function that makes the base inputs from the arguments of each call; None if the graph has no base."""
    groups = _groups(shell)
    if not groups:
        return None
    members = [(group.members[0], group.root is not None) for group in groups]
    lengths = make_filler(shell.captured, [group.length for group in groups])

    def make(args: Sequence[Any]) -> list[torch.Tensor]:
        """Return the base of each group of arguments: its root, or a flat tensor over the memory of a member."""
        return [
            # ``.data``: the flat base has no history and its own version counter.
            root_of(args[member]) if is_root else args[member].data.as_strided((length,), (1,), 0)
            for (member, is_root), length in zip(members, lengths(args), strict=True)
        ]

    return make
