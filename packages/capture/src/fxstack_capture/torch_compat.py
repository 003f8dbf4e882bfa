"""The private names of torch that ``fxstack_capture`` uses, grouped by feature.

``fxstack_interchange.torch_names`` binds them. No other module of the package reads a private name of torch.
Therefore, if a release of torch renames one, only this module changes.
"""

from __future__ import annotations

import sys
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad
from torch.fx import _symbolic_trace

from fxstack_interchange.torch_names import bind

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


NAMES = {
    "backends made with torch's aot_autograd": {"torch._guards": "TracingContext tracing"},
    "ids of compilations": {"torch._guards": "CompileContext CompileId compile_context"},
    "NumPy functions in compiled code": {"torch": "_numpy=torch_numpy", "torch._numpy": "ndarray"},
    "autograd": {
        "torch._C": "_ImperativeEngine _InferenceMode _set_grad_enabled",
        "torch._C._autograd": """
            CreationMeta _get_creation_meta _saved_tensors_hooks_disable _saved_tensors_hooks_enable
            _saved_tensors_hooks_get_disabled_error_message _saved_tensors_hooks_is_enabled
            _saved_tensors_hooks_set_tracing _set_creation_meta _top_saved_tensors_default_hooks
        """,
        "torch._C._functions": "DelayedError",
        "torch.autograd.function": "_SingleLevelFunction",
        "torch.nn.modules._functions": "BackwardHookFunction",
    },
    "calls of torch's own Python": {
        "torch": """
            _check _check_index _check_is_size _check_type _check_value _disable_dynamo _tensor=tensor_module
        """,
        "torch._C": """
            _GLIBCXX_USE_CXX11_ABI _get_tracing_state _is_tracing _log_api_usage_metadata _log_api_usage_once
        """,
        "torch._C._autograd": "_profiler_enabled",
        "torch._jit_internal": "is_scripting",
        "torch.nn.Module": "_call_impl=module_call _wrapped_call_impl=wrapped_module_call",
    },
    "forward-mode derivatives": {
        "torch._C": """
            _enter_dual_level _exit_dual_level _is_fwd_grad_enabled _set_fwd_grad_enabled
        """,
        "torch._VF": "_make_dual _unpack_dual",
        "torch.autograd.forward_ad": "_maybe_load_decompositions",
    },
    "function transforms": {
        "torch._C": "_are_functorch_transforms_active _functorch",
        "torch._C._functorch": """
            get_dynamic_layer_stack_depth is_functorch_wrapped_tensor is_legacy_batchedtensor
            maybe_current_level peek_interpreter_stack
        """,
        "torch._functorch": "eager_transforms predispatch vmap=vmap_module",
        "torch._functorch.eager_transforms": """
            _autograd_grad=functorch_gradients _jvp_with_argnums _vjp_with_argnums
        """,
        "torch._functorch.pyfunctorch": "temporarily_clear_interpreter_stack",
    },
    "global settings of torch and devices": {
        "torch._C": """
            _SDPBackend _accelerator_getAccelerator _get_deterministic_algorithms
            _get_deterministic_algorithms_warn_only _get_deterministic_fill_uninitialized_memory
            _get_privateuse1_backend_name _is_any_autocast_enabled _is_autocast_available _set_default_dtype
            _set_deterministic_algorithms _set_throw_on_mutable_data_ptr
        """
    },
    "higher-order operators": {
        "torch._higher_order_ops.associative_scan": "generic_associative_scan",
        "torch._higher_order_ops.base_hop": "BaseHOP FunctionWithNoFreeVars",
        "torch._higher_order_ops.foreach_map": "_foreach_map=foreach_map_operator",
        "torch._higher_order_ops": """
            associative_scan foreach_map map=map_ scan utils=higher_order_utils while_loop
        """,
        "torch._higher_order_ops.invoke_leaf_function": """
            _LeafCallable LeafModuleState make_leaf_function_wrappers _resolve_mutated_flat_indices
            store_makefx_modules
        """,
        "torch._higher_order_ops.invoke_subgraph": "invoke_subgraph_placeholder",
        "torch._higher_order_ops.utils": "_maybe_compile_and_run_fn",
        "torch._higher_order_ops.wrap": "wrap",
        "torch._ops": "HigherOrderOperator _higher_order_ops",
    },
    "nested tensors": {"torch.nested._internal": "nested_tensor"},
    "optimizers": {
        "torch": "_fused_adagrad_ _fused_adam_ _fused_adamw_ _fused_sgd_",
        "torch.optim.optimizer": """
            _get_value=optimizer_value _stack_if_compiling _use_grad_for_differentiable
        """,
    },
    "removing mutation": {
        "torch": "_is_functional_tensor _sync=functional_sync",
        "torch._subclasses.functional_tensor": "FunctionalTensor FunctionalTensorMode",
    },
    "symbolic sizes": {
        "torch._guards": "Guard=TorchGuard GuardSource GuardsSet SLoc ShapeGuard Source",
        "torch.fx.experimental.symbolic_shapes.ShapeEnv": """
            _maybe_evaluate_static _suppress_guards_tls
        """,
        "torch.utils._sympy": "functions=sympy_functions",
        "torch.utils._sympy.functions": "FloorDiv LShift Mod PowByNatural PythonMod ToFloat",
        "torch.utils._sympy.interp": "sympy_interp",
        "torch.utils._sympy.numbers": "int_oo",
        "torch.utils._sympy.reference": "OptimizedPythonReferenceAnalysis",
        "torch.utils._sympy.symbol": "SymT symbol_is_type",
        "torch.utils._sympy.value_ranges": "ValueRanges",
    },
    "tensor subclasses and modes": {
        "torch.Tensor": "_make_subclass _make_wrapper_subclass",
        "torch._C": """
            DisableTorchFunction DisableTorchFunctionSubclass _EnableTorchFunction _TorchDispatchModeKey
            _disabled_torch_dispatch_impl _disabled_torch_function_impl _get_function_stack_at
            _has_torch_function _has_torch_function_unary _has_torch_function_variadic
            _is_torch_function_all_disabled _is_torch_function_enabled _is_torch_function_mode_enabled
            _len_torch_dispatch_stack _len_torch_function_stack _pop_torch_function_stack
            _push_on_torch_function_stack
        """,
        "torch._ops": "_get_dispatch_mode_pre_dispatch",
        "torch.overrides": "_pop_mode_temporarily",
        "torch.utils._device": "DeviceContext",
        "torch.utils._python_dispatch": """
            _get_current_dispatch_mode_stack is_traceable_wrapper_subclass
        """,
    },
    "torch's operators and their decompositions": {
        "torch": """
            _choose_qparams_per_tensor _conj=conj_view _efficientzerotensor _foreach_add_ _lobpcg _lowrank
            _neg_view _nested_tensor_from_mask_left_aligned _refs
        """,
        "torch._C": "_group_tensors_by_device_and_dtype",
        "torch._decomp": "decomposition_table meta_table",
        "torch._prims_common": "suggest_memory_format",
        "torch._refs": "linalg=linalg_refs special=special_refs",
        "torch._refs.nn": "functional=functional_refs",
    },
    "tracing torch's operators": {
        "torch": "_C",
        "torch._C": """
            DispatchKey TensorBase _DisableTorchDispatch _EnablePythonDispatcher _FunctionBase
            _VariableFunctions _dispatch_keys _dispatch_tls_is_dispatch_key_excluded
        """,
        "torch._library": "opaque_object simple_registry",
        "torch._library.custom_ops": "CustomOpDef",
        "torch._ops": "OpOverload OpOverloadPacket",
        "torch._subclasses.fake_impls": "has_meta op_implementations_checks",
        "torch._subclasses.fake_tensor": """
            DataDependentOutputException DynamicOutputShapeException FakeTensor FakeTensorConverter
            FakeTensorMode MetadataMismatchError UnsupportedFakeTensorException
            UnsupportedMutationAliasingException UnsupportedOperatorException in_kernel_invocation_manager
            should_allow_numbers_as_tensors torch_decomp_decompositions unset_fake_temporarily
        """,
        "torch.fx.graph": "_get_qualified_name",
        "torch.utils": "_pytree",
        "torch.utils._python_dispatch": "TorchDispatchMode _disable_current_modes",
        "torch.utils._pytree": "tree_leaves tree_map tree_map_only",
    },
}
"""The private names, by feature and then by module or class. ``old=new`` binds torch's name ``old`` under the
name ``new``.
"""
bind(globals(), NAMES)


_APPLY: Any = vars(torch.autograd.Function)["apply"]
PYBIND_ENUMS: tuple[type, ...] = (
    globals()["SDPBackend"],
    *(
        vars(torch.nn.functional)[name]
        for name in ("ScalingType", "SwizzleType")
        if name in vars(torch.nn.functional)
    ),
)
"""Enumerations of torch that are C classes. Their members are constants with attributes ``value`` and
``name``.
"""
FUNCTION_APPLY: Any = getattr(_APPLY, "__func__", _APPLY)
"""The function that ``Function.apply`` calls.

It is a Python function before torch 2.14, and a class method written in C since torch 2.14.
"""


def may_trace_by_fx() -> bool:
    """Whether FX is tracing. Since torch 2.14 this means in this thread, before it means in any thread."""
    asked = getattr(_symbolic_trace, "_get_is_fx_tracing", None)
    return bool(_symbolic_trace._is_fx_tracing_flag if asked is None else asked())


def dual_level() -> int:
    """Return the innermost active level of forward-mode AD, or -1 outside of all levels.

    This is a function, because the level changes frequently.
    """
    return int(getattr(forward_ad, "_current_level", -1))


def opaque_kind(cls: type) -> str | None:
    """Return the kind under which a class of opaque objects is registered: "constant", "symbolic"; None if not."""
    if not isinstance(_OPAQUE, ModuleType):  # a torch without opaque objects
        return None
    for kind, names in _OPAQUE_KINDS.items():
        asked = next((found for name in names if (found := getattr(_OPAQUE, name, None)) is not None), None)
        if asked is not None and asked(cls):
            return kind
    return None


_OPAQUE: Any = globals()["opaque_object"]
_OPAQUE_KINDS = {
    "constant": ("is_opaque_constant_type", "is_opaque_value_type"),
    "symbolic": ("is_opaque_symbolic_type", "is_opaque_reference_type", "is_opaque_type"),
}
"""The functions of torch that ask for a kind. The first name is the present one; torch warns of the others."""


def is_allowed_by_torch(fn: FunctionType) -> bool:
    """Whether ``fn`` was registered by ``torch.compiler.allow_in_graph`` or
    ``torch._dynamo.nonstrict_trace``.
    """
    return is_told(fn, "_allowed_callable_ids")


def is_told(fn: FunctionType, name: str) -> bool:
    """Whether ``fn`` is in a table of torch's compiler: the attribute ``name`` of its trace rules.

    The result is False as long as torch's compiler is not loaded.
    """
    known = getattr(sys.modules.get("torch._dynamo.trace_rules"), name, None)
    return known is not None and id(fn) in (known.function_ids or ())
