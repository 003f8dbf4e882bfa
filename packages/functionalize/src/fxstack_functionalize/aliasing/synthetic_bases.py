"""Inputs that share memory, one of which is changed: they become views of one more input, their common base.

The base is the whole storage as one flat tensor. It is appended to the graph's inputs; the members' own
placeholders stay, unused, and inside the graph each member is ``base.as_strided(...)``. A change of one member is then
a change of the base, and shows through all of them. Members that are disjoint stay separate inputs. Where gradients are
recorded the base is the tensor that autograd knows the members as views of (``roots``).
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import torch

from fxstack_functionalize.aliasing.differentiable_bases import find_root, related
from fxstack_functionalize.errors import UnsupportedGraphError
from fxstack_functionalize.tracing.inputs import CapturedInput
from fxstack_functionalize.tracing.symbols import evaluable
from fxstack_interchange import InputKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fxstack_functionalize.tracing.inputs import Captured

    Group = tuple[int, ...]


class NeedsBasesError(Exception):
    """The trace has to start again with these groups of inputs merged."""

    def __init__(self, groups: tuple[Group, ...], rooted: tuple[Group, ...] = ()) -> None:
        self.groups = groups
        self.rooted = rooted
        """Those of them that gain a history."""
        super().__init__(groups, rooted)


class NeedsViewsError(Exception):
    """The trace has to start again with inputs that are views of tensors: one of them was given a history."""


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


def groups_to_merge(captured: Captured, changed: set[int], relaid: set[int]) -> tuple[tuple[int, ...], ...]:
    """Return the inputs that have to be views of one base, given those that are changed and those that must be views.

    A base is a whole storage, and is written as a whole: all changed inputs on it belong to it. Inputs with gradients that are
    views of one tensor have one version counter, by which autograd judges what it has saved of them: they belong together
    although they may be disjoint.
    """
    wanted = [group for group in overlapping_groups(captured) if changed.intersection(group)]
    wanted += [(index,) for index in relaid]
    together: dict[int, set[int]] = {}
    for group in wanted:
        together.setdefault(_storage(captured, group[0]), set()).update(group)
    for index in changed:
        if _is_strided(captured.inputs[index].fake):
            group_of = together.get(_storage(captured, index))
            if group_of is not None:
                group_of.add(index)
    for index in changed:
        relatives = related(captured, index)
        all_of_them = together.get(_storage(captured, index), set()) | relatives
        if relatives and not isinstance(find_root(captured, all_of_them), str):
            together[_storage(captured, index)] = all_of_them
    return tuple(tuple(sorted(group)) for group in together.values())


def _storage(captured: Captured, index: int) -> int:
    return int(captured.inputs[index].fake.untyped_storage()._cdata)


def _split(captured: Captured, members: Sequence[int]) -> list[tuple[int, ...]]:
    """Separate inputs on one storage by the ranges of memory that they span; unknown sizes overlap everything."""
    spans = [extent(captured.inputs[index].fake) for index in members]
    if any(span is None for span in spans):
        return [tuple(members)]
    known = [span for span in spans if span is not None]
    order = sorted((span, index) for span, index in zip(known, members, strict=True) if span[0] < span[1])
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
    return None if _numbers_of(tensor) else reach(tensor)


def _numbers_of(tensor: torch.Tensor) -> list[torch.SymInt]:
    """Return the symbolic numbers that say which memory ``tensor`` is."""
    numbers = (*tensor.shape, *tensor.stride(), tensor.storage_offset())
    return [number for number in numbers if isinstance(number, torch.SymInt)]


def reach(tensor: torch.Tensor) -> tuple[Any, Any]:
    """Return the first and one past the last element; of symbolic sizes, which are not 0, an expression."""
    start = tensor.storage_offset()
    if any(type(size) is int and size == 0 for size in tensor.shape):
        return start, start
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + reach + 1


def _length(members: Sequence[torch.Tensor]) -> Any:
    """Return how many elements their base has: the storage, or the part of it up to their end if that is symbolic."""
    if any(map(_numbers_of, members)):
        return reduce(torch.sym_max, [reach(member)[1] for member in members])
    return members[0].untyped_storage().nbytes() // members[0].element_size()


def with_bases(captured: Captured, groups: Sequence[Group], rooted: Sequence[Group] = ()) -> Captured:
    """Append one base input per group, in the place of those that are there; for ``rooted`` ones the tensor that they view.

    Raises:
        UnsupportedGraphError: if members differ in dtype, have sizes that do not follow from the inputs', or require gradients
            and are not views of one tensor.
    """
    inputs = [spec for spec in captured.inputs if spec.members is None]
    for number, group in enumerate(groups):
        name = f"base_{number}"
        grads = any(inputs[index].fake.requires_grad for index in group)
        if len(group) > 1 and (grads or group in rooted):
            root = find_root(captured, group)
            if isinstance(root, str):
                raise _shared(captured, group, root)
            inputs.append(CapturedInput(name, InputKind.USER_INPUT, root, members=group, is_root=True))
            continue
        _check(captured, group)
        first = captured.inputs[group[0]].fake
        length = _length([captured.inputs[index].fake for index in group])
        with captured.fake_mode, torch.no_grad():
            fake = first.detach().as_strided((length,), (1,), 0)
        inputs.append(CapturedInput(name, InputKind.USER_INPUT, fake, members=group))
    return replace(captured, inputs=tuple(inputs))


def _check(captured: Captured, group: Group) -> None:
    members = [captured.inputs[index] for index in group]
    reason = None
    if any(spec.fake.requires_grad for spec in members):
        reason = "they require gradients, and these cannot follow the shared memory"
    elif len({spec.fake.dtype for spec in members}) > 1:
        reason = "they view the memory as different dtypes"
    elif not all(evaluable(captured, _numbers_of(spec.fake)) for spec in members):
        reason = "where they are in it depends on numbers that are not known when the graph is called"
    elif any(spec.fake.is_conj() or spec.fake.is_neg() for spec in members):
        reason = "one of them is a conjugate or negative view"
    if reason is None:
        return
    if len(group) == 1:
        raise UnsupportedGraphError(
            f"the values of input {members[0].name!r} and its size or strides are changed in place",
            why=reason.replace("they require gradients, and these", "it requires a gradient, and this"),
            fix="use the out-of-place form of one of the operators (x = x.t() instead of x.t_())",
        )
    raise _shared(captured, group, reason)


def _shared(captured: Captured, group: Group, reason: str) -> UnsupportedGraphError:
    names = ", ".join(repr(captured.inputs[index].name) for index in group)
    return UnsupportedGraphError(
        f"inputs {names} share memory, and one of them is changed in place",
        why=reason,
        fix="pass tensors that do not overlap, or clone one of them",
    )


def needs_root(captured: Captured, index: int) -> NeedsBasesError | None:
    """Return what starts the trace again with the root of the group of input ``index``; None if it has none."""
    groups = tuple(spec.members for spec in captured.inputs if spec.members is not None)
    rooted = tuple(spec.members for spec in captured.inputs if spec.members and spec.is_root)
    own = next(group for group in groups if index in group)
    if len(own) == 1 or isinstance(find_root(captured, own), str):
        return None
    return NeedsBasesError(groups, (*rooted, own))


def _is_strided(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided
