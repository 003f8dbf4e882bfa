"""Inputs that share memory, one of which is changed: they become views of one more input, their common base.

The base is the whole storage as one flat tensor. It is appended to the graph's inputs; the members' own
placeholders stay, unused, and inside the graph each member is ``base.as_strided(...)``. A change of one member is then
a change of the base, and shows through all of them. Members that are disjoint stay separate inputs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from fxstack_functionalize.errors import UnsupportedGraphError
from fxstack_functionalize.inputs import CapturedInput
from fxstack_interchange import InputKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fxstack_functionalize.inputs import Captured


class NeedsBasesError(Exception):
    """The trace has to start again with these groups of inputs merged."""

    def __init__(self, groups: tuple[tuple[int, ...], ...]) -> None:
        self.groups = groups
        super().__init__(groups)


def overlapping_groups(captured: Captured) -> list[tuple[int, ...]]:
    """Return the groups (two or more) of inputs whose memory overlaps, directly or through others."""
    by_storage: dict[int, list[int]] = {}
    for index, spec in enumerate(captured.inputs):
        if _is_strided(spec.fake):
            by_storage.setdefault(spec.fake.untyped_storage()._cdata, []).append(index)
    groups = []
    for members in by_storage.values():
        if len(members) > 1:
            groups += _split(captured, members)
    return groups


def _split(captured: Captured, members: Sequence[int]) -> list[tuple[int, ...]]:
    """Separate inputs on one storage by the ranges of memory that they span; unknown sizes overlap everything."""
    spans = [extent(captured.inputs[index].fake) for index in members]
    if any(span is None for span in spans):
        return [tuple(members)]
    known = [span for span in spans if span is not None]
    order = sorted(
        (span, index) for span, index in zip(known, members, strict=True) if span[0] < span[1]
    )
    groups: list[list[int]] = []
    end = -1
    for (start, stop), index in order:
        if start >= end:
            groups.append([])
        groups[-1].append(index)
        end = max(end, stop)
    return [tuple(sorted(group)) for group in groups if len(group) > 1]


def extent(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Return the first and one past the last element of its storage that ``tensor`` reaches; None if symbolic."""
    numbers = (*tensor.shape, *tensor.stride(), tensor.storage_offset())
    if any(isinstance(number, torch.SymInt) for number in numbers):
        return None
    start = tensor.storage_offset()
    if 0 in tensor.shape:
        return start, start
    reach = sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return start, start + reach + 1


def with_bases(captured: Captured, groups: Sequence[tuple[int, ...]]) -> Captured:
    """Append one base input per group.

    Raises:
        UnsupportedGraphError: if members differ in dtype, require gradients or have symbolic sizes.
    """
    inputs = [*captured.inputs]
    for number, group in enumerate(groups):
        _check(captured, group)
        first = captured.inputs[group[0]].fake
        length = first.untyped_storage().nbytes() // first.element_size()
        with captured.fake_mode, torch.no_grad():
            fake = first.detach().as_strided((length,), (1,), 0)
        inputs.append(CapturedInput(f"base_{number}", InputKind.USER_INPUT, fake, members=group))
    return replace(captured, inputs=tuple(inputs))


def _check(captured: Captured, group: Sequence[int]) -> None:
    members = [captured.inputs[index] for index in group]
    names = ", ".join(repr(spec.name) for spec in members)
    reason = None
    if any(spec.fake.requires_grad for spec in members):
        reason = "they require gradients, and these cannot follow the shared memory"
    elif len({spec.fake.dtype for spec in members}) > 1:
        reason = "they view the memory as different dtypes"
    elif any(extent(spec.fake) is None for spec in members):
        reason = "their sizes are symbolic, so how they overlap may change from call to call"
    elif any(spec.fake.is_conj() or spec.fake.is_neg() for spec in members):
        reason = "one of them is a conjugate or negative view"
    if reason is not None:
        raise UnsupportedGraphError(
            f"inputs {names} share memory, and one of them is changed in place",
            why=reason,
            fix="pass tensors that do not overlap, or clone one of them",
        )


def _is_strided(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided
