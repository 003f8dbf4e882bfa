"""In-place operators for which functionalisation alone does not do what eager does.

Most in-place operators on tensors whose elements share memory (``x.expand(3, 4).add_(1)``) raise in eager,
but functionalisation would compute a value. The trace refuses such calls, so that eager runs and raises. A
changed tensor keeps its strides in eager, but functionalisation gives it the strides of the out-of-place
operator's result: this module restores the strides.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from types import FunctionType
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.overrides import TorchFunctionMode

from fxstack_functionalize import torch_compat
from fxstack_functionalize.errors import UnsupportedGraphError
from fxstack_functionalize.metadata.records import Relayout
from fxstack_functionalize.metadata.replay import view_steps
from fxstack_functionalize.operators.autocasts import without_casts
from fxstack_functionalize.operators.recurrent import in_steps
from fxstack_functionalize.operators.substitutes import select_rows
from fxstack_functionalize.torch_compat import FakeTensor
from fxstack_functionalize.tracer.engine import Engine, storage_key, version_of
from fxstack_functionalize.tracer.tensor_metadata import dense_like
from fxstack_functionalize.views.differentiable_bases import root_of
from fxstack_functionalize.views.inverses import check_inverses, flatten_lossy_views, overlaps_itself
from fxstack_functionalize.views.memory_layout import (
    AS_STRIDED,
    check_reach,
    keep_offset,
    note_as_strided,
    on_values,
    replace_value,
    same_strides,
    set_layout,
)
from fxstack_functionalize.views.overlap import OPERATORS, check_lists, check_reads
from fxstack_functionalize.views.result_types import check_result_types

IN_PLACE_FUNCTIONS = frozenset({operator.setitem, *(getattr(operator, f"i{name}") for name in OPERATORS)})
IN_PLACE_METHODS = frozenset(f"__{function.__name__.strip('_')}__" for function in IN_PLACE_FUNCTIONS)
"""The in-place functions as methods of tensors."""
RELAYOUTS = frozenset({"as_strided_", "squeeze_", "swapaxes_", "swapdims_", "t_", "transpose_", "unsqueeze_"})
"""In-place operators that change size and strides, but not the memory of their argument."""
READS_LAYOUT = AS_STRIDED | {
    "contiguous",
    "flatten",
    "ravel",
    "reshape",
    "reshape_as",
    "to",
    "view",
    "view_as",
}
"""Operators that return a view or a copy depending on strides, or that read the storage offset."""
INEXACT_VIEWS = frozenset({"broadcast_to", "expand", "expand_as", "unfold"})
"""Views that have no exact inverse (``inverses``). With ``Engine.flat_views``, ``as_strided`` makes them."""
VECTOR_SIZE = 16
"""From this number of elements on, torch's CPU kernel draws normal numbers in vectors if the tensor is contiguous."""
RESIZES = frozenset({"resize_", "resize_as_"})
METADATA_METHODS = RELAYOUTS | RESIZES | {"detach_", "requires_grad_", "set_"}
"""In-place operators that change metadata of a tensor, not its values."""


def run_in_place_safely(engine: Engine, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call ``function(*args, **kwargs)`` with the checks and restored strides that this module describes.

    Raises:
        UnsupportedGraphError: if the changed tensor overlaps itself, or overlaps a read tensor in part.
    """
    name, target = _name(function), args[0] if args else None
    changes = _writes_first_argument(function, args, kwargs)
    if isinstance(target, torch.Tensor):
        if engine.non_dense and name in (READS_LAYOUT | INEXACT_VIEWS if engine.flat_views else READS_LAYOUT):
            _restore_non_dense_strides(engine, target)
        if name in AS_STRIDED:
            check_reach(target, args[1:], kwargs)
        if name in AS_STRIDED or name == "storage_offset":
            note_as_strided(engine, target)
        if name in METADATA_METHODS:
            return _change_metadata(engine, function, args, kwargs)
        if changes:
            return _run_on_tensor(engine, function, args, kwargs)
    elif isinstance(target, (list, tuple)) and changes:
        return _run_on_list(engine, function, args, kwargs)
    outs = _out_tensors(kwargs)
    for out in outs:
        check_reads(engine, name, out, args, {})
        _check_change(engine, name, out)
    casts = _without_casts(engine, function) if outs else nullcontext()
    with casts, _restoring_strides(engine, _with_owners(engine, outs)):
        rows_of_tensor = select_rows(function, args, kwargs) if isinstance(target, torch.Tensor) else None
        result = function(*args, **kwargs) if rows_of_tensor is None else rows_of_tensor
        if type(result) is FakeTensor and not engine.is_functional(result):
            result = engine.wrap(result)  # the operator took numbers alone (``torch.add(7, 2)``)
    if isinstance(target, torch.Tensor) and isinstance(result, torch.Tensor):
        _note_detached(engine, target, result)
    return flatten_lossy_views(engine, result, (args, kwargs)) if engine.flat_views else result


def _run_on_tensor(
    engine: Engine, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Call an operator that changes the values of its first argument."""
    name, target = _name(function), args[0]
    if target.layout is not torch.strided:
        return function(*args, **kwargs)
    _check_leaf(engine, name, target)
    _check_draws(name, target)
    check_reads(engine, name, target, args[1:], kwargs)
    _check_change(engine, name, target)
    changed = _with_owners(engine, [target])
    with _without_casts(engine, function), _restoring_strides(engine, changed):
        result = function(*args, **kwargs)
        for tensor in changed:
            _check_views(engine, tensor)
    return result


def _without_casts(engine: Engine, function: Callable[..., Any]) -> AbstractContextManager[Any]:
    simple = function in IN_PLACE_FUNCTIONS or _name(function) in IN_PLACE_METHODS
    return without_casts(engine, function, simple=simple)


@contextmanager
def _restoring_strides(engine: Engine, changed: Sequence[torch.Tensor]) -> Iterator[None]:
    """Run the statements inside.

    Then give ``changed`` their former strides and offsets, unless the statements resize them.
    """
    before = [tensor.stride() if tensor.layout is torch.strided else None for tensor in changed]
    sizes = [tensor.shape for tensor in changed]
    offsets = [
        0 if strides is None else t.storage_offset() for t, strides in zip(changed, before, strict=True)
    ]
    yield
    for tensor, size, strides, offset in zip(changed, sizes, before, offsets, strict=True):
        if not engine.is_functional(tensor):
            continue  # a tensor of a functorch transform, which has no memory of its own
        if strides is not None and tensor.shape == size:  # a new size comes from out=, which resizes
            _keep_strides(engine, tensor, strides)
            keep_offset(engine, tensor, offset)


def _with_owners(engine: Engine, targets: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return ``targets``, their bases, and the tensors from which they were detached. All of these share values."""
    owners = [
        tensor
        for target in targets
        for tensor in (target, target._base, engine.detached_from.get(_storage_of(engine, target)))
        if tensor is not None
    ]
    return list({id(tensor): tensor for tensor in owners}.values())


def _check_views(engine: Engine, target: torch.Tensor) -> None:
    """Refuse to change a tensor with a gradient if ``t_`` or a similar operator changed one of its views.

    Autograd remakes views of functional tensors with the operators that made them, and ignores ``t_``.
    """
    root = root_of(target)
    relaid = (tensor for tensor, step in engine.relayouts if step.changes_layout and tensor is not root)
    if root.requires_grad and any(root_of(tensor) is root for tensor in relaid):
        raise UnsupportedGraphError(
            "a view has its size or strides changed in place, and the tensor that it views is changed afterwards",
            why="autograd would make the view again as it was first",
            fix="use the out-of-place form of the operator (x = x.t() instead of x.t_())",
        )


def _check_leaf(engine: Engine, name: str, target: torch.Tensor) -> None:
    """Refuse to change ``target`` in grad mode if its root is an input that is a view of a leaf with a gradient.

    Eager raises for this change.
    """
    if id(root_of(target)) in engine.views_of_leaves and torch.is_grad_enabled():
        raise UnsupportedGraphError(
            f"{name!r} changes a view of a leaf that requires a gradient",
            why="eager has an error for it",
            fix="change it under torch.no_grad(), or change a clone",
        )


def _out_tensors(kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """Return the tensors that a call with ``out=`` writes to."""
    out = kwargs.get("out")
    return [x for x in (out if isinstance(out, (list, tuple)) else [out]) if torch.is_tensor(x)]


def _note_detached(engine: Engine, source: torch.Tensor, result: torch.Tensor) -> None:
    """Record the tensor from which a ``detach()`` or ``.data`` was taken: autograd does not record it."""
    if result is source or result._base is not None:
        return
    keys = _storage_of(engine, source), _storage_of(engine, result)
    if keys[0] is not None and keys[0] == keys[1]:
        engine.detached_from.setdefault(keys[0], root_of(source))


def _storage_of(engine: Engine, tensor: torch.Tensor) -> int | None:
    """Return the identity of the storage; None for tensors of function transforms, which have no storage."""
    if tensor.layout is not torch.strided or not engine.is_functional(tensor):
        return None
    return storage_key(tensor)


def _restore_non_dense_strides(engine: Engine, target: torch.Tensor) -> None:
    """Give the tensor that owns the memory of ``target`` the gaps between elements that it has in eager."""
    key = _storage_of(engine, target)
    owner, strides = engine.non_dense.pop(key, (None, ()))
    if owner is None:
        return
    set_layout(engine, owner, strides)
    torch_compat.functional_sync(target)


def _change_metadata(
    engine: Engine, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Call an operator that changes the metadata of its first argument, and record the call for replay."""
    name, target = _name(function), args[0]
    if name != "requires_grad_":
        _check_leaf(engine, name, target)
    if name in RESIZES and _keeps_sizes(target, args, kwargs):
        return target  # functionalisation would write the values
    grad_mode, version = torch.is_grad_enabled(), version_of(target)
    if name == "set_" and len(args) == 1 and not kwargs:
        # torch's functionalisation of ``set_`` without arguments sometimes fails.
        source = target.new_empty(0)
        result = target.set_(source)
    else:
        source = args[1] if len(args) > 1 else None
        result = function(*args, **kwargs)
    if name == "set_" and isinstance(source, torch.Tensor):
        engine.set_outside(target, source)
    if name in RESIZES:
        _set_memory_format(target, args, kwargs)
    bumps = version_of(target) - version
    step = Relayout(name, tuple(args[1:]), tuple(kwargs.items()), grad_mode, bumps)
    engine.relayouts.append((target, step))
    return result


def _keeps_sizes(target: torch.Tensor, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a ``resize_`` or ``resize_as_`` call keeps the present sizes and requests no memory format."""
    if target.requires_grad or len(args) == 1 or kwargs.get("memory_format") is not None:
        return False
    sizes = args[1] if isinstance(args[1], (torch.Tensor, list, tuple)) else args[1:]
    return tuple(target.shape) == tuple(sizes.shape if isinstance(sizes, torch.Tensor) else sizes)


def _set_memory_format(target: torch.Tensor, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Give a resized tensor the requested memory format: functionalisation ignores the format."""
    memory_format = kwargs.get("memory_format")
    if memory_format is torch.preserve_format:
        memory_format = torch_compat.suggest_memory_format(args[1])
    if memory_format not in {None, torch.contiguous_format}:
        like = torch.empty(target.shape, device="meta", memory_format=memory_format)
        target.as_strided_(target.shape, like.stride(), target.storage_offset())


def _run_on_list(
    engine: Engine, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Call an operator that changes a list of tensors, and raise their version counters."""
    check_changed_list(engine, function, args, kwargs)
    return change_list(engine, function, args, kwargs)


def check_changed_list(
    engine: Engine, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Refuse to change a list of tensors of which one shares memory with another, or with itself, or for which results do
    not fit its type.
    """
    check_result_types(_name(function), args)
    tensors = [target for target in args[0] if isinstance(target, torch.Tensor)]
    check_lists(engine, _name(function), tensors, args[1:], kwargs)
    for tensor in tensors:
        _check_change(engine, _name(function), tensor)


def change_list(
    engine: Engine, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Change a list of tensors without the checks, and raise their version counters."""
    tensors = [target for target in args[0] if isinstance(target, torch.Tensor)]
    versions = [tensor._version for tensor in tensors]
    with _without_casts(engine, function), _restoring_strides(engine, _with_owners(engine, tensors)):
        result = function(*args, **kwargs)
    for tensor in tensors:
        _check_views(engine, tensor)
    if [tensor._version for tensor in tensors] == versions:
        for tensor in tensors:  # views of one tensor share a counter, and each raises it once
            torch_compat.unsafe_set_version_counter((tensor,), (tensor._version + 1,))
    return result


class InPlaceMode(TorchFunctionMode):
    """Applies ``run_in_place_safely`` to the calls inside an opaque Python function."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return in_steps(partial(run_in_place_safely, self._engine, func), func, args, kwargs or {})


def _writes_first_argument(function: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call changes the values of its first argument: by its name, or by ``inplace=True``."""
    if is_in_place(function) and _name(function) not in METADATA_METHODS:
        return True
    if is_torch_function(function):
        position = _position_of_inplace(function)
        is_set = position is not None and position < len(args) and args[position]
        return bool(is_set or kwargs.get("inplace"))
    return False


def is_torch_function(function: object) -> bool:
    """Whether a value is a Python function of torch. A function made by ``exec`` may have no module name."""
    return isinstance(function, FunctionType) and (function.__module__ or "").startswith("torch.")


def is_in_place(function: object) -> bool:
    """Whether the function, or the method of this name, changes its first argument."""
    if function in IN_PLACE_FUNCTIONS:
        return True
    if (
        getattr(function, "__module__", None) == operator.or_.__module__
    ):  # ``or_`` and ``and_`` change nothing
        return False
    name = function if isinstance(function, str) else _name(function)
    return name in IN_PLACE_METHODS or (name.endswith("_") and not name.endswith("__"))


@cache
def _position_of_inplace(function: FunctionType) -> int | None:
    """Return the position of the parameter ``inplace`` (``F.relu(x, inplace=True)``).

    Do not follow ``__wrapped__``: ``Tensor.__pow__`` wraps a C method without a signature.
    """
    names = [*inspect.signature(function, follow_wrapped=False).parameters]
    return names.index("inplace") if "inplace" in names else None


def _name(function: object) -> str:
    name = str(getattr(function, "__name__", ""))
    return name.partition(".")[0] if isinstance(function, torch_compat.OpOverload) else name


def _check_change(engine: Engine, name: str, target: torch.Tensor) -> None:
    """Refuse to change a tensor whose elements share memory.

    Refuse to change a view of such a tensor, detached or not.
    """
    strided = [t for t in _with_owners(engine, [target]) if t.layout is torch.strided]
    if any(map(overlaps_itself, strided)):
        raise UnsupportedGraphError(
            f"{name!r} changes a tensor in place of which several elements share memory",
            why="eager has an error for most such calls, and a functional graph would give a value",
            fix="clone the tensor first",
        )
    check_inverses(engine, name, target)


def _check_draws(name: str, target: torch.Tensor) -> None:
    """Refuse ``normal_`` for a tensor with gaps.

    Eager draws the numbers of such a tensor one by one. A functional graph would fill a dense copy, for which
    eager draws vectors of other numbers.
    """
    if name != "normal_" or statically_known_true(target.numel() < VECTOR_SIZE):
        return
    if torch.ops.aten.is_non_overlapping_and_dense.default(target):
        return
    raise UnsupportedGraphError(
        "'normal_' fills a tensor that has gaps between its elements",
        why="eager draws other numbers for it than for a dense tensor",
        fix="fill a new tensor (torch.randn) and copy it",
    )


def _keep_strides(engine: Engine, target: torch.Tensor, strides: Sequence[Any]) -> None:
    """Give the value of a functional tensor its earlier strides. Views get their strides from their base.

    A value that had gaps between its elements becomes dense. Operators that depend on gaps call
    ``_restore_non_dense_strides`` first.
    """
    core = engine.core(target)
    if not torch_compat.is_functional_tensor(core):
        return
    torch_compat.functional_sync(target)
    value = torch_compat.from_functional_tensor(core)
    if value.stride() == strides:
        return
    with on_values():
        example = torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
        laid_out = dense_like(example)(value)
        static = all(type(stride) is int for stride in strides)
        if static and laid_out.stride() != strides and same_strides(laid_out, strides):
            laid_out = laid_out.as_strided(laid_out.shape, strides, laid_out.storage_offset())
    replace_value(core, laid_out)
    empty = any(statically_known_true(size == 0) for size in value.shape)
    if not (empty or view_steps(core) or same_strides(laid_out, strides)):
        engine.non_dense[storage_key(target)] = target, strides
