"""If the graph changes one of several inputs that share memory, these inputs become views of an extra input,
their base.

The base is the whole storage as one flat tensor, appended to the graph's inputs. The placeholders of the
members stay, unused; inside the graph each member is ``base.as_strided(...)``. So a change of one member is a
change of the base, and all members show it. Disjoint members stay separate inputs. If gradients are recorded,
the base is the tensor that is the ``_base`` of the members (``differentiable_bases``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import torch

from fxstack_functionalize.errors import UnsupportedGraphError
from fxstack_functionalize.tracer.inputs import Captured, CapturedInput, RestartTraceError
from fxstack_functionalize.tracer.symbols import is_evaluable
from fxstack_functionalize.views.differentiable_bases import find_root, inputs_by_root, root_of
from fxstack_interchange import InputKind

Group = tuple[int, ...]


def overlapping_groups(captured: Captured) -> list[tuple[int, ...]]:
    """Return the groups (two or more) of inputs whose memory overlaps, directly or through other inputs."""
    by_storage: dict[int, list[int]] = {}
    for index, spec in enumerate(captured.inputs):
        if _is_strided(spec.fake):
            by_storage.setdefault(spec.fake.untyped_storage()._cdata, []).append(index)
    groups = []
    for members in by_storage.values():
        if len(members) > 1:
            groups += _split_disjoint(captured, members)
    return groups


def groups_to_merge(captured: Captured, changed: set[int], relaid: set[int]) -> tuple[tuple[int, ...], ...]:
    """Return the groups of inputs to merge. ``relaid``: changed inputs whose size or strides change.

    A base is a whole storage and is written as a whole, so all changed inputs on it belong to its group.
    Inputs with gradients that are views of one tensor share a version counter. Autograd compares this counter
    with the counters of saved tensors, so these inputs belong to one group even if they are disjoint.
    """
    to_merge = [group for group in overlapping_groups(captured) if changed.intersection(group)]
    to_merge += [(index,) for index in relaid]
    together: dict[int, set[int]] = {}
    for group in to_merge:
        together.setdefault(_storage_of(captured, group[0]), set()).update(group)
    for index in changed:
        if _is_strided(captured.inputs[index].fake):
            group_of = together.get(_storage_of(captured, index))
            if group_of is not None:
                group_of.add(index)
    roots = inputs_by_root(captured)
    for index in changed:
        relatives = roots.get(id(root_of(captured.inputs[index].fake)), set())
        all_of_them = together.get(_storage_of(captured, index), set()) | relatives
        if relatives and not isinstance(find_root(captured, all_of_them), str):
            together[_storage_of(captured, index)] = all_of_them
    return tuple(tuple(sorted(group)) for group in together.values())


def _storage_of(captured: Captured, index: int) -> int:
    """Return the identity of the storage of an input."""
    return int(captured.inputs[index].fake.untyped_storage()._cdata)


def _split_disjoint(captured: Captured, members: Sequence[int]) -> list[tuple[int, ...]]:
    """Split inputs on one storage by the memory ranges that they span. Symbolic sizes overlap everything."""
    spans = [static_span(captured.inputs[index].fake) for index in members]
    if any(span is None for span in spans):
        return [tuple(members)]
    known_spans = [span for span in spans if span is not None]
    # An empty tensor has no element to share.
    order = sorted(
        (span, index) for span, index in zip(known_spans, members, strict=True) if span[0] < span[1]
    )
    groups: list[list[int]] = []
    end = -1
    for (start, stop), index in order:
        if start >= end:
            groups.append([])
        groups[-1].append(index)
        end = max(end, stop)
    return [tuple(sorted(group)) for group in groups if len(group) > 1]


def static_span(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Return (first element, end) of the part of its storage that ``tensor`` reaches; None if a size is symbolic."""
    return None if _numbers_of(tensor) else element_span(tensor)


def _numbers_of(tensor: torch.Tensor) -> list[torch.SymInt]:
    """Return the symbolic numbers in the layout of ``tensor``."""
    numbers = (*tensor.shape, *tensor.stride(), tensor.storage_offset())
    return [number for number in numbers if isinstance(number, torch.SymInt)]


def element_span(tensor: torch.Tensor) -> tuple[Any, Any]:
    """Return (first element, end) like ``static_span``. Symbolic sizes give symbolic numbers, and count as not 0."""
    start = tensor.storage_offset()
    if any(type(size) is int and size == 0 for size in tensor.shape):
        return start, start
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + last + 1


def _base_length(members: Sequence[torch.Tensor]) -> Any:
    """Return the number of elements of the base: the whole storage, or up to the members' end if symbolic."""
    if any(map(_numbers_of, members)):
        return reduce(torch.sym_max, [element_span(member)[1] for member in members])
    return members[0].untyped_storage().nbytes() // members[0].element_size()


def with_bases(captured: Captured, groups: Sequence[Group], rooted: Sequence[Group] = ()) -> Captured:
    """Return ``captured`` with one base input per group, in place of the base inputs of an earlier trace.

    ``rooted``: groups whose base is the members' autograd root even without gradients.

    Raises:
        UnsupportedGraphError: if members differ in dtype, have sizes that do not follow from the inputs'
            sizes, or require gradients but are not views of one tensor.
    """
    inputs = [spec for spec in captured.inputs if spec.members is None]
    for number, group in enumerate(groups):
        name = f"base_{number}"
        grads = any(inputs[index].fake.requires_grad for index in group)
        if len(group) > 1 and (grads or group in rooted):
            root = find_root(captured, group)
            if isinstance(root, str):
                raise _shared_memory_error(captured, group, root)
            inputs.append(CapturedInput(name, InputKind.USER_INPUT, root, members=group, is_root=True))
            continue
        _check_group(captured, group)
        first = captured.inputs[group[0]].fake
        length = _base_length([captured.inputs[index].fake for index in group])
        with captured.fake_mode, torch.no_grad():
            fake = first.detach().as_strided((length,), (1,), 0)
        inputs.append(CapturedInput(name, InputKind.USER_INPUT, fake, members=group))
    return replace(captured, inputs=tuple(inputs))


def restart_with_bases(groups: Sequence[Group], rooted: Sequence[Group] = ()) -> RestartTraceError:
    """Return the error that restarts the trace with each of these groups merged into one base.

    ``rooted``: see ``with_bases``.
    """
    return RestartTraceError(lambda captured: with_bases(captured, groups, rooted))


def _check_group(captured: Captured, group: Group) -> None:
    """Raise UnsupportedGraphError if the members of a group cannot be views of one flat base."""
    members = [captured.inputs[index] for index in group]
    reason = None
    if any(spec.fake.requires_grad for spec in members):
        reason = "they require gradients, and these cannot follow the shared memory"
    elif len({spec.fake.dtype for spec in members}) > 1:
        reason = "they view the memory as different dtypes"
    elif not all(is_evaluable(captured, _numbers_of(spec.fake)) for spec in members):
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
    raise _shared_memory_error(captured, group, reason)


def _shared_memory_error(captured: Captured, group: Group, reason: str) -> UnsupportedGraphError:
    """Return the error about inputs of ``group`` for which no common base can be made.

    ``reason``: the error's ``why``.
    """
    names = ", ".join(repr(captured.inputs[index].name) for index in group)
    return UnsupportedGraphError(
        f"inputs {names} share memory, and one of them is changed in place",
        why=reason,
        fix="pass tensors that do not overlap, or clone one of them",
    )


def restart_with_root(captured: Captured, index: int) -> RestartTraceError | None:
    """Return the error that restarts the trace with the root of input ``index``; None if it has no root."""
    groups = tuple(spec.members for spec in captured.inputs if spec.members is not None)
    rooted = tuple(spec.members for spec in captured.inputs if spec.members and spec.is_root)
    group_of_input = next(group for group in groups if index in group)
    if len(group_of_input) == 1 or isinstance(find_root(captured, group_of_input), str):
        return None
    return restart_with_bases(groups, (*rooted, group_of_input))


def _is_strided(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided
