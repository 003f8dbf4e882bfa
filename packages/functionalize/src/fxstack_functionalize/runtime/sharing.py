"""Check that a call's inputs share memory exactly as the traced ones did, where the graph changes an input.

Otherwise the compiled graph could write into a tensor and read the old value through another one. Such a call runs
the captured graph in eager instead. Graphs that change no input need no check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fxstack_functionalize.bases import extent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fxstack_functionalize.shell import Shell


def sharing_guard(shell: Shell) -> Callable[[Sequence[Any]], bool] | None:
    """Return a predicate on the call's arguments: may the compiled graph be used? None if it always may."""
    inputs = shell.captured.inputs
    changed = {i for i, seen in enumerate(shell.info.inputs) if seen.mutates_data}
    if not changed:
        return None
    groups = [spec.members for spec in inputs if spec.members is not None]
    grouped = {index for group in groups for index in group}
    for group in groups:
        changed |= set(group)
    bytes_of = {
        index: _bytes(spec.fake)
        for index, spec in enumerate(inputs)
        if isinstance(spec.fake, torch.Tensor) and spec.members is None
    }
    relative = [_relative(shell, group) for group in groups]
    checked = [index for index in bytes_of if index not in grouped]

    def same_sharing(args: Sequence[Any]) -> bool:
        for members in relative:
            start = args[members[0][0]].data_ptr() - members[0][1]
            for index, offset in members:
                if args[index].data_ptr() - start != offset:
                    return False
        spans = [(args[index].data_ptr(), index) for index in checked]
        spans += [(args[members[0][0]].data_ptr(), members[0][0]) for members in relative]
        return not _collide(spans, args, bytes_of, changed)

    return same_sharing if len(checked) + len(groups) > 1 or groups else None


def _collide(
    spans: list[tuple[int, int]],
    args: Sequence[Any],
    bytes_of: dict[int, int | None],
    changed: set[int],
) -> bool:
    """Whether a changed input's memory overlaps that of another one."""
    spans.sort()
    reach, reached_by_changed = -1, False
    for start, index in spans:
        length = bytes_of[index]
        if length is None:
            found = extent(args[index])
            assert found is not None
            length = (found[1] - found[0]) * args[index].element_size()
        if length == 0:
            continue
        if start < reach and (reached_by_changed or index in changed):
            return True
        if start >= reach:
            reached_by_changed = False
        reached_by_changed |= index in changed
        reach = max(reach, start + length)
    return False


def _bytes(fake: torch.Tensor) -> int | None:
    if fake.layout is not torch.strided:
        return 0
    span = extent(fake)
    return None if span is None else (span[1] - span[0]) * fake.element_size()


def _relative(shell: Shell, group: Sequence[int]) -> list[tuple[int, int]]:
    """Byte offsets of a group's members in their common storage."""
    fakes = [shell.captured.inputs[index].fake for index in group]
    return [
        (index, fake.storage_offset() * fake.element_size())
        for index, fake in zip(group, fakes, strict=True)
    ]


def base_maker(shell: Shell) -> Callable[[Sequence[Any]], list[torch.Tensor]] | None:
    """Return a function that makes the base inputs from the call's arguments; None if there are none."""
    plans = [
        (spec.members[0], spec.fake.shape[0])
        for spec in shell.captured.inputs
        if spec.members is not None
    ]
    if not plans:
        return None

    def make(args: Sequence[Any]) -> list[torch.Tensor]:
        return [args[index].data.as_strided((length,), (1,), 0) for index, length in plans]

    return make
