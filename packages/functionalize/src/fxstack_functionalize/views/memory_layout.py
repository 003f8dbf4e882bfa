"""Give changed tensors the strides and the storage offset that they have in eager.

In-place operators compute dense values. Whether a later ``reshape`` or ``contiguous`` returns a view or a
copy depends on the gaps between elements that the changed tensor has in eager (``x[:, :5]``).

``as_strided`` addresses the whole storage of its argument, not only the argument. torch's functionalisation
treats the result as a view of the argument and loses changes outside of the argument, so calls that reach
outside are refused. The offset counts from the start of the storage. So if such a view exists or is made
later, a tensor that is changed in place keeps its storage offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_false, statically_known_true

from fxstack_functionalize import torch_compat
from fxstack_functionalize.errors import UnsupportedGraphError
from fxstack_functionalize.metadata.replay import view_steps
from fxstack_functionalize.tracer.engine import Engine, current_value, storage_key

_FUNCTIONALIZE = torch_compat.DispatchKeySet(torch_compat.DispatchKey.Functionalize)

# Limits: if the graph makes a tensor with non-dense strides, changes it in place and returns it, the result
# is dense. normal_ on such a tensor of 16 elements or more draws other numbers than eager.


def same_strides(tensor: torch.Tensor, strides: Sequence[Any]) -> bool:
    """Whether ``tensor`` certainly has these strides. Strides of dimensions of size 1 do not count."""
    return all(
        statically_known_true(size == 1) or statically_known_true(tensor_stride == stride)
        for size, tensor_stride, stride in zip(tensor.shape, tensor.stride(), strides, strict=True)
    )


def with_non_dense_strides(value: torch.Tensor, strides: Sequence[Any], offset: object = 0) -> torch.Tensor:
    """Copy ``value`` into new memory with these strides and this storage ``offset``."""
    reach = sum((n - 1) * step for n, step in zip(value.shape, strides, strict=True)) + 1
    memory = value.new_zeros((offset + reach,))
    filled = torch.ops.aten.as_strided_scatter.default(memory, value, value.shape, strides, offset)
    return filled.as_strided(value.shape, strides, offset)


def set_layout(
    engine: Engine, owner: torch.Tensor, strides: Sequence[Any] | None, offset: object = 0
) -> None:
    """Give the value of ``owner`` these strides (None: its own) and this storage ``offset``."""
    value = current_value(engine, owner)
    with on_values():
        laid_out = with_non_dense_strides(value, strides or value.stride(), offset)
        replace_value(engine.core(owner), laid_out)


@contextmanager
def on_values() -> Iterator[None]:
    """Run operators on the values under functional tensors, without autograd history."""
    with torch.no_grad(), below_functionalization():
        yield


def below_functionalization() -> AbstractContextManager[Any]:
    """Run operators on the values under functional tensors, in the present grad mode."""
    return cast("AbstractContextManager[Any]", torch_compat.ExcludeDispatchKeyGuard(_FUNCTIONALIZE))


def replace_value(core: torch.Tensor, value: torch.Tensor) -> None:
    """Replace the value of a functional tensor (C++ level), and update the owner of its memory."""
    torch_compat.functionalize_replace(core, value)
    torch_compat.functionalize_commit_update(core)
    torch_compat.functionalize_sync(core)


# Limits: as_strided, select_scatter, slice_scatter and diagonal_scatter of a part of a larger tensor return a
# tensor with a storage of its own size; eager's storage is as large as the argument's.

AS_STRIDED = frozenset({"as_strided", "as_strided_"})


def check_reach(target: torch.Tensor, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Check a call of ``as_strided`` with the further arguments ``args``.

    Raises:
        UnsupportedGraphError: if the call may reach elements of the storage outside of ``target``.
    """
    arguments = {**dict(zip(("size", "stride", "storage_offset"), args, strict=False)), **kwargs}
    size, stride = arguments.get("size"), arguments.get("stride")
    if not isinstance(size, (list, tuple)) or not isinstance(stride, (list, tuple)):
        return  # eager raises
    offset = arguments.get("storage_offset")
    start = target.storage_offset()
    numbers = (*size, *stride, start if offset is None else offset, *target.shape, start)
    is_symbolic = any(type(number) is not int for number in numbers)
    inside = is_symbolic and _is_same_layout(target, size, stride, offset)
    if not (inside or _is_inside(target, size, stride, start if offset is None else offset)):
        raise UnsupportedGraphError(
            "as_strided reaches outside of the tensor that it is called on",
            why="a later change of such a view would have to show in memory that the graph does not know",
            fix="call it on the tensor that owns the memory",
        )


def _is_inside(target: torch.Tensor, size: Sequence[Any], stride: Sequence[Any], first: object) -> bool:
    """Whether all elements lie in ``target``. Adds guards; False for data-dependent numbers."""
    if any(guard_or_false(n == 0) for n in size):
        return True
    start = target.storage_offset()
    end = first + sum((n - 1) * step for n, step in zip(size, stride, strict=False)) + 1
    in_memory = guard_or_false(first >= start) and guard_or_false(end <= start + target.numel())
    return bool(in_memory and torch.ops.aten.is_non_overlapping_and_dense.default(target))


def _is_same_layout(target: torch.Tensor, size: Sequence[Any], stride: Sequence[Any], offset: object) -> bool:
    """Whether size, stride and offset equal the layout of ``target``, up to the order of dimensions."""
    dims = {
        (_number_key(n), _number_key(step)) for n, step in zip(target.shape, target.stride(), strict=True)
    }
    requested = {(_number_key(n), _number_key(step)) for n, step in zip(size, stride, strict=False)}
    return requested <= dims and (
        offset is None or _number_key(offset) == _number_key(target.storage_offset())
    )


def _number_key(number: object) -> Any:
    return number.node.expr if isinstance(number, torch.SymInt) else number


def note_as_strided(engine: Engine, target: torch.Tensor) -> None:
    """Record an ``as_strided`` of ``target``. Give the owner of its memory the storage offset of eager."""
    if target.layout is not torch.strided or not engine.is_functional(target):
        return
    key = storage_key(target)
    engine.has_absolute_views.add(key)
    owner, offset = engine.moved.pop(key, (None, 0))
    if owner is not None:
        set_layout(engine, owner, None, offset)
        torch_compat.functional_sync(target)


def keep_offset(engine: Engine, target: torch.Tensor, offset: object) -> None:
    """Restore the ``offset`` of a tensor changed in place: now, or in ``note_as_strided`` if no view needs it yet."""
    core = engine.core(target)
    if not torch_compat.is_functional_tensor(core) or view_steps(core):
        return
    value = torch_compat.from_functional_tensor(core)
    if statically_known_true(value.storage_offset() == offset):
        return
    key = storage_key(target)
    if key in engine.has_absolute_views:
        set_layout(engine, target, None, offset)
    else:
        engine.moved[key] = target, offset
