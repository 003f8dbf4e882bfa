"""The fake tensor mode of a trace: ``FakeTensorMode`` with a cache of operator results."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from fxstack_capture import torch_compat
from fxstack_capture.breaks import graph_break
from fxstack_capture.torch_compat import (
    FakeTensor,
    FakeTensorConverter,
    FakeTensorMode,
    OpOverload,
    TorchDispatchMode,
    nested_tensor,
    should_allow_numbers_as_tensors,
)
from fxstack_capture.torch_compat import higher_order_ops as _higher_order_ops
from fxstack_capture.torch_side.fakes.equal_rows import rows_of
from fxstack_capture.torch_side.fakes.fake_kernels import kernel_of, promoted_operator, symbolic_kernel
from fxstack_capture.torch_side.fakes.operator_cache import (
    MASKS,
    SYMBOLIC,
    Fresh,
    OperatorCache,
    Part,
    Same,
    View,
    is_predictable,
    key_of,
    process_cache,
    recipe_of,
)
from fxstack_capture.torch_side.fakes.size_checks import SIZE_RULES, check_sizes
from fxstack_capture.torch_side.fakes.writes import OperatorMode, demand_accepted
from fxstack_capture.trace.state import Args, Kwargs
from fxstack_interchange.torch_facts.checks import RefusedArgumentsError, has_symbols, refused_ranges, refuses
from fxstack_interchange.torch_facts.dtypes import convert_dtypes, eager_dtypes, have_other_dtypes
from fxstack_interchange.torch_facts.layouts import eager_strides, view_with_strides
from fxstack_interchange.torch_facts.raising import refuses_data
from fxstack_interchange.torch_facts.undefined import with_undefined

_LOG = logging.getLogger("torch._subclasses.fake_tensor")
_NO_KWARGS: dict[str, Any] = {}
_QUANTIZES = frozenset(
    getattr(packet, overload)
    for name in (
        *("quantize_per_tensor", "quantize_per_tensor_dynamic", "quantize_per_channel", "empty_quantized"),
        *("_empty_affine_quantized", "_empty_per_channel_affine_quantized"),
        *("_make_per_tensor_quantized_tensor", "_make_per_channel_quantized_tensor"),
    )
    for packet in (getattr(torch.ops.aten, name),)
    for overload in packet.overloads()
)
"""Operators that return quantized tensors. Fakes are not quantized, so a later ``dequantize`` would have no
effect.
"""
_INDEX = torch.ops.aten.index.Tensor
_DEVICE = torch.ops.prim.device.default
_NUMBER = torch.ops.aten._local_scalar_dense.default
_SELECT = torch.ops.aten.select.int


class CaptureFakeMode(OperatorMode, FakeTensorMode):
    """``FakeTensorMode`` with recipes (``operator_cache``). An operator without a recipe runs
    ``FakeTensorMode.dispatch``.
    """

    def __init__(self) -> None:
        """Set the attributes that ``FakeTensorMode.__init__`` sets."""
        # ``FakeTensorMode.__init__`` would import torch's own compiler. A test compares these attributes with
        # those of torch's class.
        TorchDispatchMode.__init__(self)
        self.allow_fallback_kernels = True
        self.propagate_real_tensors = False
        self.fake_tensor_converter = FakeTensorConverter(copy_data=False, export=False)
        self.static_shapes = True
        self.allow_scalar_outputs = False
        self._allow_unsafe_data_ptr_access = False
        self.allow_meta = True
        self.cache_enabled = False
        self.cache_crosscheck_enabled = False
        self.allow_non_fake_inputs = False
        self.in_kernel_invocation = False
        self.enter_stack: list[Any] = []
        self.shape_env: ShapeEnv | None = None
        self._stack_trace = traceback.StackSummary()
        self._stack = None
        self._mode_key = torch_compat.TorchDispatchModeKey.FAKE
        self.nt_tensor_id_initial_count = nested_tensor._tensor_id_counter
        self.nt_tensor_id_counter = self.nt_tensor_id_initial_count
        self._recipes = process_cache()
        self._symbolic_recipes = OperatorCache()
        self.number_read: torch.Tensor | None = None
        """The tensor whose unknown number the last operator tried to read. The read broke the graph."""
        self.operators: set[Any] = set()
        """The operators that have run in this trace."""
        self.data_checks = 0
        """Number of calls that may raise an error because of tensor data."""
        self._torch_depth = 0
        """Nesting depth of ``_dispatch_in_torch``. Torch makes the calls inside of it, not the program."""
        self._refusals = 0
        """Number of calls so far that eager would reject."""
        self._ranges: set[object] = set()
        """The calls for whose numbers ``refused_ranges`` has been asked."""
        self._avoids_devices = bool(FakeTensorMode.avoid_device_init.fget(self))
        self._templates: dict[torch.device, dict[str, Any]] = {}
        _share_rules()

    def use_symbols(self, env: ShapeEnv) -> None:
        """Allow symbolic sizes of ``env`` from now on. Called when the trace makes its ShapeEnv."""
        self.shape_env = env
        self.static_shapes = False

    @property
    def avoid_device_init(self) -> bool:
        """Whether no GPU or other accelerator is available. Operators on fakes must then not initialise one.

        torch reads this at each entry of the mode and in each dispatch. torch's own property searches for
        devices each time, which is slow. Therefore the value is cached.
        """
        return self._avoids_devices

    def __torch_dispatch__(
        self, func: OpOverload, types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or _NO_KWARGS
        if func is _DEVICE:  # kernels read the device several times in each call
            return args[0].device
        self.operators.add(func)
        self.data_checks += refuses_data(func, args)
        if func is _NUMBER:
            self.number_read = args[0]
        try:
            result = self._run(func, types, args, kwargs)
        except RuntimeError as error:
            if _shares_what_it_writes(func, args):
                raise graph_break("unsupported-call", f"{func} of tensors that overlap") from error
            raise
        if isinstance(func, OpOverload) and not self._torch_depth:
            demand_accepted(func, args, kwargs)
        if func is not _NUMBER:  # keep it, because the unbacked number may later turn out to be unusable
            self.number_read = None
        return result

    def _run(self, func: object, types: Sequence[type], args: object, kwargs: object) -> Any:
        """Return the result of an operator. If the operator is predictable, use a recipe; otherwise compute
        the result.
        """
        if self.in_kernel_invocation:
            return self._dispatch_in_torch(func, types, args, kwargs)
        if not is_predictable(func):
            result = self._dispatch_in_torch(func, types, args, kwargs)
            self._demand_accepted(func, args, kwargs, result)
            return self._with_eager_layout(func, args, kwargs, result)
        return self._predict(func, types, args, kwargs)

    def _predict(self, func: OpOverload, types: Any, args: Any, kwargs: Any) -> Any:
        """Return the result of a recipe. If there is no recipe, compute the result and store its recipe."""
        kernel = None if self.shape_env is None else symbolic_kernel(func, args)
        if kernel is not None:
            return kernel(self, func, args, kwargs)
        tensors: list[FakeTensor] = []
        key = key_of(func, args, kwargs, tensors)
        # With a mask as index, the size of the result depends on tensor data, so there is no recipe.
        if key is None or (func is _INDEX and any(t.dtype in MASKS for t in tensors[1:])):
            return self._as_eager(self._dispatch_in_torch, func, types, args, kwargs)
        recipes = self._symbolic_recipes if SYMBOLIC in key else self._recipes
        recipe = recipes.get(key)
        if recipe is not None:
            results = [self._part(part, tensors) for part in recipe.parts]
            return results[0] if recipe.container is None else recipe.container(results)
        refusals = self._refusals
        result = self._as_eager(self._compute, func, types, args, kwargs, tensors)
        # no recipe: the program itself may make this call next, and it must raise then
        if self._refusals != refusals:
            return result
        # An operator that changes metadata of its arguments has no recipe.
        recipe = recipe_of(result, tensors)
        if recipe is not None and key_of(func, args, kwargs, []) == key:
            recipes.put(key, recipe)
        return result

    def _as_eager(
        self,
        make: Callable[..., Any],
        func: Callable[..., Any],
        types: Sequence[type],
        args: Args,
        kwargs: Kwargs,
        *more: Any,
    ) -> Any:
        """Return the result of ``make`` with eager's dtypes and strides. Raise an error if eager rejects the
        call.
        """
        if func in _QUANTIZES:
            raise graph_break("unsupported-tensor", f"quantized tensor, the result of {func},")
        dtypes = eager_dtypes(func, args, kwargs)
        if func in SIZE_RULES:
            with self:
                check_sizes(func, args)
        result = make(promoted_operator(func, args), types, args, kwargs, *more)
        if dtypes is not None and have_other_dtypes(result, dtypes):
            with self:
                result = convert_dtypes(result, dtypes)
        self._demand_accepted(func, args, kwargs, result)
        return self._with_eager_layout(func, args, kwargs, result)

    def _demand_accepted(self, func: OpOverload, args: Any, kwargs: Any, result: Any) -> None:
        """Raise ``RefusedArgumentsError`` if eager rejects the call. The caller then gets eager's exception.

        Numbers for which the answer may differ are guarded. The graph breaks if the answer depends on
        symbols.
        """
        if not refuses(func, args, kwargs, result):
            if self.shape_env is not None and not self._torch_depth:
                for number, largest in refused_ranges(func, args, kwargs, result, self._ranges):
                    bool(number <= largest)  # adds a guard, because the next call may have another number
                    bool(number >= -largest)
            return
        self._refusals += 1
        if self._torch_depth:
            # A decomposition has made the call (``rand_like`` of integers). Eager does not run the
            # decomposition.
            return
        if has_symbols((args, kwargs)):  # eager may accept other values of the symbols
            raise graph_break("unsupported-call", f"{func}, which eager refuses in this call")
        raise RefusedArgumentsError

    @staticmethod
    def _with_eager_layout(func: OpOverload, args: Any, kwargs: Any, result: Any) -> Any:
        """Return the result with eager's strides and undefined results. Meta functions do not give these."""
        result = with_undefined(func, args, kwargs, result)
        strides = eager_strides(func, args, kwargs, result)
        return result if strides is None else view_with_strides(result, strides)

    def _compute(
        self, func: object, types: object, args: object, kwargs: object, tensors: list[FakeTensor]
    ) -> Any:
        """Compute the result by a kernel of ``fake_kernels``. Without one, use torch's own dispatch."""
        kernel = kernel_of(func)
        ordinary = self.shape_env is None and all(t.layout is torch.strided for t in tensors)
        if kernel is None or not ordinary or (not tensors and should_allow_numbers_as_tensors(func)):
            return self._dispatch_in_torch(func, types, args, kwargs)
        try:
            return kernel(self, func, args, kwargs)
        except NotImplementedError:  # torch has other fallbacks, for example the real kernel on zeros
            return self._dispatch_in_torch(func, types, args, kwargs)

    def _dispatch_in_torch(self, func: object, types: object, args: Any, kwargs: Any) -> Any:
        """Return the result of torch's own dispatch, which need not see equal positions of lists more than once."""
        rows = rows_of(func, args, kwargs)
        if rows is None:
            return self._dispatch(func, types, args, kwargs)
        return rows.expanded(self._dispatch(func, types, rows.reduced(args), kwargs), self._fresh_like)

    def _fresh_like(self, fake: FakeTensor) -> FakeTensor:
        """Return a new fake with the metadata of a result that shares no memory."""
        meta = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device="meta")
        return self.wrap(meta, fake.fake_device)

    def _dispatch(self, func: object, types: object, args: object, kwargs: object) -> Any:
        """Return the result of torch's own dispatch. Its log records are suppressed, because an error may be
        the program's.
        """
        disabled, _LOG.disabled = _LOG.disabled, True
        # The symbol of a storage offset is no number that the program reads. autograd selects again after a write.
        self.allow_scalar_outputs = func is _SELECT
        self._torch_depth += 1
        try:
            return self.dispatch(func, types, args, kwargs)
        finally:
            self._torch_depth -= 1
            _LOG.disabled = disabled

    def _part(self, part: Part, tensors: list[FakeTensor]) -> FakeTensor:
        """Return the tensor of a result that ``part`` describes. ``tensors`` are the tensor arguments of the
        call.
        """
        if type(part) is Same:
            return tensors[part.of]
        if type(part) is Fresh:
            meta = torch.empty_strided(part.size, part.stride, dtype=part.dtype, device="meta")
            return self.wrap(meta, part.device)
        assert type(part) is View
        base = tensors[part.of]
        inference = base.is_inference()
        if inference is torch.is_inference_mode_enabled():
            return self._view(part, base)
        with torch.inference_mode(inference):  # a view is an inference tensor if its base is one
            return self._view(part, base)

    def _view(self, part: View, base: FakeTensor) -> FakeTensor:
        """Return a fake over the storage of ``base`` with the geometry of ``part``."""
        meta = torch.empty(0, dtype=part.dtype, device="meta")
        meta.set_(base.untyped_storage(), part.offset, part.size, part.stride)
        return self.wrap(meta, base.fake_device)

    def wrap(self, meta: torch.Tensor, device: torch.device) -> FakeTensor:
        """Return a fake on ``device`` for the meta tensor ``meta``.

        To save time, all fakes of one device share the attributes of the first fake.
        """
        template = self._templates.get(device)
        if template is None:
            fake = FakeTensor(self, meta, device)
            self._templates[device] = dict(fake.__dict__)
            return fake
        fake = torch_compat.make_subclass(
            FakeTensor, meta, False, dispatch_device=True, device_for_backend_keys=device
        )
        torch_compat.set_throw_on_mutable_data_ptr(fake)
        fake.__dict__.update(template)
        return fake


def _shares_what_it_writes(func: object, args: Args) -> bool:
    """Return whether a call writes to a tensor that shares its storage with another argument."""
    # Eager checks for overlapping memory before all other errors.
    first = func._schema.arguments[:1] if isinstance(func, OpOverload) else ()
    if not any(x.alias_info is not None and x.alias_info.is_write for x in first):
        return False
    storages = [x.untyped_storage()._cdata for x in args if isinstance(x, FakeTensor)]
    return storages[:1] != [] and storages[0] in storages[1:]


def _share_rules() -> None:
    """Register torch's rules of higher-order operators for ``CaptureFakeMode``. Called when a mode is made."""
    # A higher-order operator finds its rule by the exact class of the mode.
    for operator in _higher_order_ops.values():
        rules = operator.python_key_table
        if FakeTensorMode in rules and CaptureFakeMode not in rules:
            rules[CaptureFakeMode] = rules[FakeTensorMode]
