"""The table of rules: the functions of torch whose calls need more than a node.

A rule takes the tracer, the function, and the arguments of the call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import BuiltinFunctionType, MethodType, MethodWrapperType
from typing import Any, Final

import torch

from fxstack_capture import torch_compat
from fxstack_capture.breaks import GraphBreak, graph_break
from fxstack_capture.callers import calls_program
from fxstack_capture.torch_compat import FakeTensor
from fxstack_capture.torch_side.arrays import tensor_arrays as numpy_arrays
from fxstack_capture.torch_side.autograd import accumulation, autograd_function, gradients, tensor_hooks
from fxstack_capture.torch_side.autograd import inference_mode as inference
from fxstack_capture.torch_side.global_state import generator_draws, library_flags, seeding, state
from fxstack_capture.torch_side.higher_order import control_flow as higher_order
from fxstack_capture.torch_side.higher_order import flex, layers, nested_checks, operators
from fxstack_capture.torch_side.numbers import (
    known_values,
    number_tensors,
    symbolic_indices,
    tensor_to_int_arguments,
)
from fxstack_capture.torch_side.recording.execution import name_of
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.torch_side.rules import copying, profiler_ranges, storages, symbolic_arguments
from fxstack_capture.torch_side.subclasses import override_rules
from fxstack_capture.trace.rule_registry import Registry, Rule
from fxstack_capture.trace.state import Args, Kwargs


@calls_program
def query(_tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for getters whose result other guards cover: call the function while tracing."""
    # The guard on torch's state covers the result, or the result depends on the arguments only.
    return fn(*args, **kwargs)


@calls_program
def guarded_query(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Guard the result of a getter whose state no other guard covers, and call the getter."""
    tracer.guard_flag(fn, args)
    return fn(*args, **kwargs)


def set_attention(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Switch an attention backend. The guard makes the state before the graph a constant."""
    tracer.guard_flag(_GETTER_OF[fn])
    return set_state(tracer, fn, args, kwargs)


@calls_program
def set_state(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for setters of torch's state: set the state now, and add a node that sets it in the graph."""
    args, kwargs = tensor_to_int_arguments.with_decisions(args, kwargs) or (args, kwargs)
    result = fn(*args, **kwargs)
    if tracer.transforms.inside:  # the transforms pass the relevant state to the operators of the graph
        return result
    node = tracer.builder.add("call_function", fn, args, kwargs)
    tracer.annotate(node)
    return result


@calls_program
def deeper_autocast(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``autocast_increment_nesting``: count in the trace, without a node."""
    # ``state_delta`` increments the nesting for the replacement code. A node would increment the nesting
    # twice.
    tracer.state.nesting += 1
    return fn(*args, **kwargs)


@calls_program
def shallower_autocast(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``autocast_decrement_nesting``: count in the trace, without a node."""
    tracer.state.nesting -= 1
    return fn(*args, **kwargs)


def ignored(_tracer: TracerProtocol, _fn: object, _args: Args, _kwargs: Kwargs) -> None:
    """Skip a call that only collects usage statistics of torch."""


def data_leaves(_tracer: TracerProtocol, fn: object, _args: Args, _kwargs: Kwargs) -> Any:
    """Break the graph: the result is Python data computed from elements of a tensor."""
    raise graph_break("data-dependent-value", name_of(fn))


@calls_program
def scalar(tracer: TracerProtocol, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Record ``item()`` or a conversion to a number.

    The result is an unbacked symbol if the options allow it.
    """
    tensor = args[0]
    if not kwargs and fn.__name__ in _FOR_ARITHMETIC.get(_caller(tracer), ()):
        return _CONVERSIONS.get(fn.__name__, _same)(tracer.counted(tensor))
    constant = known_values.value_of(tracer, tensor)
    if constant is not None and constant.numel() == 1:
        return getattr(constant, fn.__name__)()
    if fn.__name__ == "item" and tensor.dtype is torch.bool:
        with suppress(GraphBreak):
            return tracer.trace.interp.truth_of_result(tensor)
    if not tracer.assumptions.captures_numbers:
        return tracer.record(fn, args, kwargs)  # returns a known constant, or breaks the graph
    number = tracer.number_in(tensor)
    return _CONVERSIONS.get(fn.__name__, _same)(number)


def truth(tracer: TracerProtocol, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Return the truth of a tensor: a constant if its value is known, else by the recorded call."""
    constant = known_values.value_of(tracer, args[0])
    if constant is not None and constant.numel() == 1:
        return bool(constant)
    return tracer.record(fn, args, kwargs)


def _caller(tracer: TracerProtocol) -> str:
    """Return the file of the calling code, for ``_FOR_ARITHMETIC``: the folder of ``torch.optim`` for its files.

    An empty string if no frame is interpreted.
    """
    stack = tracer.trace.interp.user_stack()
    file = stack[-1][0] if stack else ""
    return _OPTIMIZERS if file.startswith(_OPTIMIZERS) else file


def _same(number: object) -> Any:
    """Return the number itself: the conversion of ``item``, beside those of ``__int__`` and ``__float__``."""
    return number


_OPTIMIZERS = str(Path(torch.optim.__file__).parent)
_FOR_ARITHMETIC = {_OPTIMIZERS: ("item",), torch.nn.modules.batchnorm.__file__: ("__float__",)}
"""By file or folder of torch: the conversions that it uses for arithmetic (step counts, norms, numbers of batches)."""
_CONVERSIONS = {"__int__": torch.sym_int, "__float__": torch.sym_float}


def to_list(tracer: TracerProtocol, fn: Any, args: Args, _kwargs: Kwargs) -> Any:
    """Apply the rule for ``Tensor.tolist``. Unknown elements become symbols if the options allow it."""
    tensor = args[0]
    constant = known_values.value_of(tracer, tensor)
    if constant is not None:
        return constant.tolist()
    if not tracer.assumptions.captures_numbers:
        raise graph_break("data-dependent-number", name_of(fn))
    if tensor.dim() == 0:
        return tracer.number_in(tensor)
    elements = tracer.record(torch.Tensor.unbind, (tensor, 0), {})
    return [to_list(tracer, torch.Tensor.tolist, (element,), {}) for element in elements]


def recurrent(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Record a recurrent layer.

    Break the graph for a packed sequence, because the layer reads the batch sizes.
    """
    packed = len(args) > 3 and isinstance(args[3], (list, tuple))  # args: data, batch_sizes, hx, params
    if packed and isinstance(args[1], FakeTensor):
        data_leaves(tracer, fn, args, kwargs)
    return tracer.record(fn, args, kwargs)


def convert(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Record ``Tensor.type``. A legacy tensor class becomes its name, because a graph can hold a name."""
    by_name = [f"{arg.__module__}.{arg.__name__}" if type(arg) is _TENSOR_TYPE else arg for arg in args]
    return tracer.record(fn, tuple(by_name), kwargs)


_TENSOR_TYPE = type(torch.FloatTensor)


def outside_of_graph(_tracer: TracerProtocol, fn: Callable[..., Any], _args: Args, _kwargs: Kwargs) -> Any:
    """Break the graph: the method uses or exports the tensor's data, which a fake does not have."""
    raise graph_break("unsupported-call", f"Tensor.{fn.__name__}")


def acts_outside(_tracer: TracerProtocol, fn: Callable[..., Any], _args: Args, _kwargs: Kwargs) -> Any:
    """Break the graph at a call that reads or changes state outside of the graph, such as ``torch.seed``."""
    raise graph_break("side-effect-call", f"torch.{fn.__name__}")


def reads_offset(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Record a call whose result may depend on the storage offsets of the inputs."""
    tracer.guard_offsets()
    return tracer.record(fn, args, kwargs)


def is_set_to(tracer: TracerProtocol, _fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``Tensor.is_set_to``: compare storage, offset, sizes and strides."""
    # ``is_set_to`` of a fake tensor and itself is False.
    if len(args) != 2 or kwargs or not all(type(tensor) is FakeTensor for tensor in args):
        raise graph_break("unsupported-call", "Tensor.is_set_to")
    tracer.guard_offsets()
    with tracer.unrecorded():
        outside = [fake.untyped_storage()._cdata for fake, _, _ in tracer.inputs()]
        first, second = ((t.untyped_storage()._cdata, t.storage_offset(), t.size(), t.stride()) for t in args)
        # No guard covers whether two inputs share memory.
        counts = outside.count(first[0]), outside.count(second[0])
        if args[0] is not args[1] and (max(counts) > 1 if first[0] == second[0] else min(counts) > 0):
            raise graph_break("unsupported-call", "Tensor.is_set_to of two tensors from outside")
        return first == second


def changes_input_metadata(tracer: TracerProtocol, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Record a change of a tensor that the graph made.

    Break the graph for an input, whose caller sees the change.
    """
    tensor = args[0]
    if tracer.source_of(tensor) is not None:
        raise graph_break("unsupported-call", f"Tensor.{fn.__name__} of a tensor from outside")
    return tracer.record(fn, args, kwargs)


def changes_history(tracer: TracerProtocol, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Record ``requires_grad_`` or ``detach_``.

    Break the graph if an input gets a second autograd history.
    """
    args, kwargs = tensor_to_int_arguments.with_decisions(args, kwargs) or (args, kwargs)
    tensor = args[0]
    real, source = tracer.original_of(tensor)
    if source is not None and (real is None or not _keeps_one_leaf(tensor, real, fn, args, kwargs)):
        raise graph_break("unsupported-call", f"Tensor.{fn.__name__} of a tensor from outside")
    return tracer.record(fn, args, kwargs)


def _keeps_one_leaf(
    tensor: torch.Tensor, real: torch.Tensor, fn: Callable[..., Any], args: Args, kwargs: Kwargs
) -> bool:
    """Return whether the graph uses only one autograd history of the input: the history before or after the call."""
    if type(real) not in (torch.Tensor, torch.nn.Parameter) or real.is_inference():
        return False
    unchanged = tensor.requires_grad is real.requires_grad and tensor.is_leaf is real.is_leaf
    if fn.__name__ == "detach_":
        return unchanged and not real.is_leaf and not real._is_view()
    wanted = kwargs.get("requires_grad", (*args[1:], True)[0])
    becomes = wanted is True and real.is_leaf and not real._is_view()
    return unchanged and (wanted is tensor.requires_grad or becomes)


def iterate(tracer: TracerProtocol, _fn: Any, args: Args, _kwargs: Kwargs) -> Any:
    """Return an iterator over the rows, which one ``unbind`` computes. Raise torch's TypeError for a 0-d tensor."""
    tensor = args[0]
    if tensor.dim() == 0:
        raise TypeError("iteration over a 0-d tensor")
    return iter(tracer.record(torch.Tensor.unbind, (tensor, 0), {}))


def length(tracer: TracerProtocol, _fn: Any, args: Args, _kwargs: Kwargs) -> Any:
    """Apply the rule for ``len(tensor)``: return the first size. Raise torch's TypeError for a 0-d tensor."""
    tensor = args[0]
    if tensor.dim() == 0:
        raise TypeError("len() of a 0-d tensor")
    return tracer.record(torch.Tensor.size, (tensor, 0), {})


def rule_of(fn: object) -> Rule | None:
    """Return the rule of a function or an unbound tensor method, or ``None``."""
    return RULES.objects.get(id(fn))


def rule_of_call(fn: Any, args: Args) -> tuple[Rule | None, Any, Args]:
    """Return the rule of a call, the function to pass to the rule, and the arguments.

    A bound tensor method becomes the function of ``torch.Tensor``, with the tensor as the first argument.
    """
    if isinstance(fn, _BOUND) and isinstance(fn.__self__, torch.Tensor):
        # By name: ``FakeTensor`` overrides methods such as ``tolist``.
        fn, args = getattr(torch.Tensor, fn.__name__, fn), (fn.__self__, *args)
    rule = rule_of(fn)
    if rule is None and torch_compat.HigherOrderOperator in type(fn).__mro__:
        rule = operators.call_operator
    return rule, fn, args


_BOUND = (MethodType, BuiltinFunctionType, MethodWrapperType)


def has_rule(fn: object) -> bool:
    """Return whether the table has a rule for ``fn``."""
    return rule_of(fn) is not None


_METHODS: dict[str, Rule] = {
    "type": convert,
    **dict.fromkeys(("__array__", "__repr__", "__str__", "__format__"), data_leaves),
    **dict.fromkeys(("item", "__int__", "__float__"), scalar),
    "__bool__": truth,
    "__deepcopy__": copying.deepcopy,
    "numpy": numpy_arrays.to_numpy,
    "tolist": to_list,
    **dict.fromkeys(
        (
            *(
                "__reduce_ex__",
                "__setstate__",
                "__dlpack__",
                "__array_wrap__",
                "const_data_ptr",
                "_use_count",
            ),
            *("storage", "_typed_storage", "share_memory_", "is_shared", "is_pinned", "module_load"),
            *("apply_", "map_", "map2_"),
        ),
        outside_of_graph,
    ),
    **dict.fromkeys(("storage_offset", "as_strided", "as_strided_"), reads_offset),
    "is_set_to": is_set_to,
    **storages.METHODS,
    **dict.fromkeys(("set_", "resize_", "resize_as_"), changes_input_metadata),
    **dict.fromkeys(("requires_grad_", "detach_"), changes_history),
    "__getitem__": symbolic_indices.read,
    "__setitem__": symbolic_indices.write,
    "__iter__": iterate,
    "__len__": length,
    "fill_diagonal_": symbolic_arguments.fill_diagonal,
    "as_subclass": override_rules.AS_SUBCLASS,
    "backward": gradients.method,
    "register_hook": tensor_hooks.register,
    "register_post_accumulate_grad_hook": tensor_hooks.register,
    "retain_grad": tensor_hooks.retain_grad,
    **dict.fromkeys(generator_draws.FILLS, generator_draws.fill),
}

_QUERIES = (
    *(torch.is_grad_enabled, torch.is_inference_mode_enabled, torch.get_default_dtype, torch.get_num_threads),
    *(torch.is_autocast_enabled, torch.is_autocast_cpu_enabled, torch.is_autocast_cache_enabled),
    *(torch.get_autocast_dtype, torch.get_autocast_cpu_dtype, torch.get_autocast_gpu_dtype),
    *(
        torch.amp.is_autocast_available,
        torch_compat.is_autocast_available,
        torch_compat.is_any_autocast_enabled,
    ),
    *(torch.finfo, torch.iinfo, torch.promote_types, torch.can_cast, torch.device),
    *(torch.cuda.is_available, torch.cuda.device_count, torch.backends.mps.is_available),
    *(torch_compat.accelerator_getAccelerator, torch_compat.get_privateuse1_backend_name),
    *(torch_compat.is_tracing, torch_compat.get_tracing_state, torch_compat.len_torch_dispatch_stack),
    *(torch_compat.get_deterministic_algorithms, torch_compat.get_deterministic_algorithms_warn_only),
    *(torch_compat.peek_interpreter_stack, torch_compat.maybe_current_level),
    *(torch_compat.is_functorch_wrapped_tensor, torch_compat.group_tensors_by_device_and_dtype),
    torch_compat.saved_tensors_hooks_is_enabled,
)

_SETTERS = (
    *(
        torch_compat.set_grad_enabled,
        torch_compat.set_default_dtype,
        torch_compat.set_deterministic_algorithms,
    ),
    *(torch.set_autocast_enabled, torch.set_autocast_dtype, torch.set_autocast_cpu_enabled),
    *(torch.set_autocast_cpu_dtype, torch.set_autocast_gpu_dtype, torch.set_autocast_cache_enabled),
    torch.clear_autocast_cache,
)

_CHECKS = (
    *(torch_compat.check, torch_compat.check_is_size, torch_compat.check_index),
    *(torch_compat.check_value, torch_compat.check_type),
)

_READS_DATA = (
    torch_compat.nested_tensor_from_mask_left_aligned,
    torch_compat.choose_qparams_per_tensor,
    torch.fbgemm_linear_quantize_weight,
    torch.is_nonzero,
)
"""Operators that return plain numbers computed from data. Some of them return arbitrary numbers for fakes."""

_GETTER_OF: dict[Any, Callable[[], Any]] = {
    getattr(torch_compat.C, f"_set_sdp_use_{name}"): getter for name, getter in state.ATTENTION_FLAGS.items()
}

_FUNCTIONS: dict[Any, Rule] = {
    **dict.fromkeys(_GETTER_OF, set_attention),
    **dict.fromkeys(_GETTER_OF.values(), guarded_query),
    **dict.fromkeys(library_flags.GETTERS, guarded_query),
    torch_compat.profiler_enabled: guarded_query,
    **dict.fromkeys(_READS_DATA, data_leaves),
    torch_compat.FUNCTION_APPLY: autograd_function.apply,
    torch.autograd.grad: gradients.grad,
    accumulation.accumulate: accumulation.accumulate_alone,
    accumulation.show: accumulation.show_to_hook,
    accumulation.demand_hook: accumulation.demand_in_hook,
    torch.autograd.backward: gradients.backward,
    torch_compat.log_api_usage_once: ignored,
    **dict.fromkeys(
        (torch.seed, torch.initial_seed, torch_compat.top_saved_tensors_default_hooks), acts_outside
    ),
    **dict.fromkeys(_QUERIES, query),
    **dict.fromkeys(_SETTERS, set_state),
    torch.autocast_increment_nesting: deeper_autocast,
    torch.autocast_decrement_nesting: shallower_autocast,
    **dict.fromkeys((torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu), recurrent),
    **layers.RULES,
    **inference.RULES,
    **seeding.RULES,
    **override_rules.RULES,
    torch.from_numpy: numpy_arrays.from_numpy,
    torch.tensor: numpy_arrays.tensor,
    torch.as_tensor: numpy_arrays.as_tensor,
    torch.Tensor.new_tensor: number_tensors.new_tensor,
    **higher_order.RULES,
    **flex.RULES,
    **dict.fromkeys(generator_draws.FUNCTIONS, generator_draws.draw),
    torch.Generator.manual_seed: generator_draws.seed,
    **storages.FUNCTIONS,
    **profiler_ranges.RULES,
    torch.as_strided: reads_offset,
    torch.batch_norm: symbolic_arguments.batch_norm,
    operator.getitem: symbolic_indices.read,
    operator.setitem: symbolic_indices.write,
    **dict.fromkeys(_CHECKS, nested_checks.check_number),
    **{getattr(torch.Tensor, name): rule for name, rule in _METHODS.items() if hasattr(torch.Tensor, name)},
}

RULES: Final = Registry()
"""The rules of torch's functions and tensor methods."""
for _function, _rule in _FUNCTIONS.items():
    RULES.add(_rule, _function)
