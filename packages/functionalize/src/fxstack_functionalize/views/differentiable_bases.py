"""Handle inputs that are views of one tensor, if the graph changes one of them while gradients are recorded.

Autograd records the change on the common root (``view._base``), and gives each view a new history when the
view is next read. So the root becomes a further input of the graph, the one with the gradient, and the graph
makes the views from the root. After the graph has run, the wrapper copies the new value into the caller's
root, and autograd updates the views as in eager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fxstack_functionalize import torch_compat
from fxstack_functionalize.tracer.inputs import Captured
from fxstack_functionalize.tracer.symbols import hint_of, is_evaluable

ViewFunction = Callable[[torch.Tensor], torch.Tensor]

# Limits: members are refused if autograd does not record them as views of one tensor with a gradient.
# Examples: a detach() beside its source; a view made under no_grad; a result of an operator with several
# results; a view of another dtype; a view of a tensor without gradient. A dimension of one element, with a
# stride that no dimension of the root has, gets the stride of ``unsqueeze``.

_DEFAULT = torch_compat.CreationMeta.DEFAULT


def root_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor that ``tensor`` is a view of, or itself."""
    return tensor if tensor._base is None else tensor._base


def is_plain_view(tensor: torch.Tensor) -> bool:
    """Whether ``tensor`` is no view, or a view that gets a new history when its base changes."""
    return tensor._base is None or torch_compat.get_creation_meta(tensor) == _DEFAULT


def find_root(captured: Captured, group: Iterable[int]) -> torch.Tensor | str:
    """Return the common root of the inputs ``group``, or the reason why no root can replace them."""
    members = [captured.inputs[index].fake for index in group]
    root = root_of(members[0])
    if any(root_of(member) is not root for member in members):
        return "they require gradients, and are not views of one tensor for autograd"
    if any(member.requires_grad is not root.requires_grad for member in members):
        return "some of them require gradients, and others that share their memory do not"
    if not all(map(is_plain_view, members)):
        return "one of them is a view that autograd gives no new history (of no_grad, of several results)"
    numbers = (*root.shape, *root.stride(), root.storage_offset())
    if not is_evaluable(captured, numbers):
        return "the size of the tensor that they are views of is not known when the graph is called"
    if not all(member is root or _view_function(root, member) is not None for member in members):
        return "they require gradients, and how they lie in the tensor that they are views of is not regular"
    return root


def inputs_by_root(captured: Captured) -> dict[int, set[int]]:
    """Return the inputs that are views of one root with a gradient, two or more, by the id of the root."""
    found: dict[int, set[int]] = {}
    for position, spec in enumerate(captured.inputs):
        if isinstance(spec.fake, torch.Tensor) and (root := root_of(spec.fake)).requires_grad:
            found.setdefault(id(root), set()).add(position)
    return {root: inputs for root, inputs in found.items() if len(inputs) > 1}


def derive_view(argument: torch.Tensor, root: torch.Tensor, member: torch.Tensor) -> torch.Tensor:
    """Return the view of ``argument`` that corresponds to the view ``member`` of ``root``."""
    if member is root:
        return argument
    way = _view_function(root, member)
    assert way is not None
    with torch.enable_grad():
        return way(argument)


def whole_view(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view of all of ``tensor`` with the same strides.

    ``view_as`` gives dimensions of one element other strides.
    """
    return cast("torch.Tensor", torch.ops.aten.alias.default(tensor))


def _view_function(root: torch.Tensor, member: torch.Tensor) -> ViewFunction | None:
    """Return the function from ``root`` to ``member``, made of view operators; None if there is none."""
    if member.dtype != root.dtype or any(t.is_conj() or t.is_neg() for t in (root, member)):
        return None
    root_place, member_place = Layout.of(root), Layout.of(member)
    if root_place == member_place:
        return whole_view
    regular = _regular_view(root_place, member_place)
    numbers = (*root_place.numbers, *member_place.numbers)
    if regular is not None or not all(type(number) is int for number in numbers):
        return regular
    return _view_of_reshaped(root_place, member_place) if root.is_contiguous() else None


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a tensor in its storage."""

    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    offset: Any

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Layout:
        return cls(tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset())

    @property
    def numbers(self) -> tuple[Any, ...]:
        return (*self.shape, *self.strides, self.offset)


def _view_of_reshaped(root: Layout, member: Layout) -> ViewFunction | None:
    """Return a function that reshapes a contiguous tensor such that ``member`` is a regular part of it."""
    count = prod(root.shape)
    for strides in (_dividing_strides(count, member), (1,)):
        shape = tuple(outer // stride for outer, stride in zip((count, *strides), strides, strict=False))
        part = _regular_view(Layout(shape, strides, root.offset), member)
        if part is not None:
            return _after_view(shape, part)
    if root.offset != 0:
        return None
    return lambda argument: argument.view(-1).as_strided(member.shape, member.strides, member.offset)


def _after_view(shape: tuple[int, ...], part: ViewFunction) -> ViewFunction:
    return lambda argument: part(argument.view(shape))


def _dividing_strides(count: int, member: Layout) -> tuple[int, ...]:
    """Return strides for a dense shape of ``count`` elements: the strides of ``member`` that divide the
    stride before them.
    """
    steps: list[int] = []
    for stride in sorted({*member.strides, 1} - {0}, reverse=True):
        if (steps[-1] if steps else count) % stride == 0:
            steps.append(stride)
    return tuple(steps)


def _regular_view(root: Layout, member: Layout) -> ViewFunction | None:
    """Return the function that slices, selects and permutes dimensions of ``root`` to get ``member``."""
    starts = _start_indices(root, member.offset - root.offset)
    if starts is None or any(_is_certain(size == 0) for size in member.shape):
        return None
    dims = _matching_dimensions(root, member)
    if dims is None:
        return None
    slices: dict[int, slice] = {}
    for dim_of_member, dim in dims.items():
        slice_of_dim = _slice_of(
            root, dim, starts[dim], member.shape[dim_of_member], member.strides[dim_of_member]
        )
        if slice_of_dim is None:
            return None
        slices[dim] = slice_of_dim
    order = [dims[dim] for dim in sorted(dims)]
    added = [dim for dim in range(len(member.shape)) if dim not in dims]
    index = tuple(slices.get(dim, start) for dim, start in enumerate(starts))
    sorted_dims = sorted(order)
    permutation = [sorted_dims.index(dim) for dim in order]

    def way(argument: torch.Tensor) -> torch.Tensor:
        """Return the member as a view of the base ``argument``. It uses only views with exact inverses."""
        view = argument[index].permute(permutation)
        for dim_of_member in added:
            view = view.unsqueeze(dim_of_member)
        # Leave out an expand without effect, because its inverse is not exact (``inverses``).
        is_same_shape = all(_is_certain(a == b) for a, b in zip(view.shape, member.shape, strict=True))
        return view if is_same_shape else view.expand(member.shape)

    return way


def _matching_dimensions(root: Layout, member: Layout) -> dict[int, int] | None:
    """Return the dimension of ``root`` for each dimension of ``member`` that is a part of it; None if there is
    no dimension for several elements.

    A dimension of one element is a part of a dimension with the same stride. There may be none.
    """
    found: dict[int, int] = {}
    ones = [dim for dim, size in enumerate(member.shape) if _is_certain(size == 1)]
    for dim_of_member, stride in enumerate(member.strides):
        if dim_of_member not in ones and not _is_certain(stride == 0):
            dim = _find_dimension(root, stride)
            if dim is None or dim in found.values():
                return None
            found[dim_of_member] = dim
    for one in ones:
        free = [dim for dim in range(len(root.shape)) if dim not in found.values()]
        equal = [dim for dim in free if _is_certain(root.strides[dim] == member.strides[one])]
        if equal:
            found[one] = equal[0]
    return found


def _slice_of(root: Layout, dim: int, start: Any, size: Any, stride: Any) -> slice | None:
    """Return the slice with ``size`` elements of a dimension of ``root``; None if it may not fit."""
    length, step = (
        root.shape[dim],
        1 if _is_certain(stride == root.strides[dim]) else stride // root.strides[dim],
    )
    if _is_certain(step == 1) and _is_certain(size == length):
        return slice(None)
    end = start + (size - 1) * step + 1
    return slice(start, end, step) if _is_certain(end <= length) else None


def _start_indices(root: Layout, distance: Any) -> list[Any] | None:
    """Return the index (one number per dimension) of the element of ``root`` that lies ``distance`` elements
    after its start.

    None if elements of ``root`` may coincide, or no element certainly lies there.
    """
    starts: list[Any] = [0] * len(root.shape)
    within = None
    for dim in sorted(range(len(root.shape)), key=lambda dim: -hint_of(root.strides[dim])):
        size, stride = root.shape[dim], root.strides[dim]
        if _is_certain(size == 1):
            continue
        if not _is_certain(stride > 0) or not (within is None or _is_certain(size * stride <= within)):
            return None
        within = stride
        if not _is_certain(abs(distance) < stride):
            starts[dim] = distance // stride
            distance = distance - starts[dim] * stride
        if not (_is_certain(starts[dim] >= 0) and _is_certain(starts[dim] < size)):
            return None
    return starts if _is_certain(distance == 0) else None


def _find_dimension(root: Layout, stride: object) -> int | None:
    """Return the outermost dimension of ``root`` whose stride divides ``stride``."""
    long = [dim for dim in range(len(root.shape)) if not _is_certain(root.shape[dim] == 1)]
    equal = [dim for dim in long if _is_certain(root.strides[dim] == stride)]
    if equal or type(stride) is not int:
        return equal[0] if equal else None
    steps = {dim: root.strides[dim] for dim in long if type(root.strides[dim]) is int}
    fitting = [dim for dim, step in steps.items() if 0 < step <= stride and stride % step == 0]
    return max(fitting, key=steps.__getitem__, default=None)


def _is_certain(truth: object) -> bool:
    """Whether a condition on symbolic numbers is certain, without a guard."""
    return bool(statically_known_true(truth))


def find_duplicates(fakes: Sequence[Any], group: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return (member, earlier member) for each member of ``group`` that is the same tensor as an earlier member."""
    first: dict[int, int] = {}
    pairs = [(index, first.setdefault(id(fakes[index]), index)) for index in group]
    return tuple((index, earlier) for index, earlier in pairs if index != earlier)


def leaves_behind(functions: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yield each leaf behind the nodes ``functions`` of the autograd graph once. A function may be None."""
    visited, stack = set[Any](), list(functions)
    while stack:
        node = stack.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        stack += [following for following, _ in node.next_functions]
        if hasattr(node, "variable"):
            yield node.variable
