"""The private names of torch in this package, by purpose (see ``fxstack_interchange.torch_names``).

No other module of the package uses private names, so a new release of torch needs changes in this module
alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxstack_interchange.torch_names import bind

if TYPE_CHECKING:
    from typing import Any

    def __getattr__(name: str) -> Any: ...


NAMES = {
    "autograd": {
        "torch.Tensor": "_version=tensor_version",
        "torch._C": """
            _current_autograd_node _current_graph_task_id _set_grad_enabled _will_engine_execute_node
        """,
        "torch._C._functions": "DelayedError",
        "torch._C._autograd": """
            CreationMeta _get_creation_meta _get_current_graph_task_keep_graph _saved_tensors_hooks_set_tracing
            _top_saved_tensors_default_hooks _unsafe_set_version_counter
        """,
        "torch.autograd": "_get_sequence_nr",
        "torch.autograd.graph": "_engine_run_backward",
    },
    "calls of torch's own Python": {
        "torch._library": "custom_ops=custom_operators",
        "torch.nn.utils.stateless": "_reparametrize_module",
    },
    "function transforms": {
        "torch": "_add_batch_dim _remove_batch_dim",
        "torch._C": """
            _are_functorch_transforms_active _functorch _vmapmode_decrement_nesting _vmapmode_increment_nesting
        """,
        "torch._C._functorch": """
            get_dynamic_layer_stack_depth get_unwrapped is_batchedtensor is_functorch_wrapped_tensor
            pop_dynamic_layer_stack_and_undo_to_depth
        """,
        "torch._functorch.pyfunctorch": "temporarily_clear_interpreter_stack",
    },
    "global settings of torch and devices": {
        "torch._C": """
            _DisableAutocast _get_deterministic_algorithms _get_deterministic_algorithms_warn_only
            _get_mkldnn_enabled _is_any_autocast_enabled _set_deterministic_algorithms _set_mkldnn_enabled
        """,
        "torch.amp.autocast_mode": "_enter_autocast _exit_autocast",
    },
    "higher-order operators": {
        "torch._C": """
            _AutoDispatchBelowAutograd _dispatch_tls_local_exclude_set=current_exclude_keys
            _dispatch_tls_local_include_set=current_include_keys
        """,
        "torch._higher_order_ops.effects": "_get_effect has_effects",
        "torch._higher_order_ops.base_hop": "BaseHOP",
        "torch._higher_order_ops.utils": "materialize_as_graph",
        "torch._ops": "HigherOrderOperator",
        "torch._prims.rng_prims": "run_and_save_rng_state",
    },
    "other tracers around a compiled call": {
        "torch.fx.experimental.proxy_tensor": """
            _MakefxTracer _ProxyTensor _set_make_fx_tracer
        """
    },
    "removing mutation": {
        "torch": """
            _disable_functionalization _enable_functionalization _from_functional_tensor
            _functionalize_commit_update _functionalize_has_data_mutation _functionalize_has_metadata_mutation
            _foreach_copy_ _functionalize_mutation_counter _functionalize_replace _functionalize_sync
            _functionalize_was_storage_changed _is_functional_tensor _sync=functional_sync
            _to_functional_tensor
        """,
        "torch._C": "_functionalization",
        "torch._C._functionalization": "_unsafe_view_ViewMeta",
        "torch._subclasses.functional_tensor": """
            FunctionalTensor FunctionalTensorMode PythonFunctionalizeAPI disable_functional_mode
        """,
    },
    "storages of tensors": {"torch._C": "_storage_address"},
    "symbolic sizes": {
        "torch.utils._sympy.printers": "PythonPrinter",
        "torch.utils._sympy.symbol": "SymT symbol_is_type",
    },
    "tensor subclasses and modes": {
        "torch._C": "DisableTorchFunctionSubclass _TorchDispatchModeKey",
        "torch.utils._python_dispatch": "is_traceable_wrapper_subclass",
    },
    "torch's operators and their decompositions": {
        "torch": "_conj=conj_view _neg_view",
        "torch._C": "_nn",
        "torch._decomp": "decomposition_table",
        "torch._decomp.decompositions": """
            matmul=decomposed_matmul upsample_compute_output_size
        """,
        "torch._prims_common": "is_contiguous_or_false suggest_memory_format",
    },
    "tracing torch's operators": {
        "torch._C": """
            DispatchKey DispatchKeySet _ExcludeDispatchKeyGuard _ForceDispatchKeyGuard _FunctionBase _VariableFunctions
            _DisableTorchDispatch _dispatch_dump
            _dispatch_has_kernel=has_operator _dispatch_has_kernel_for_dispatch_key=has_kernel
            _dispatch_tls_is_dispatch_key_excluded _dispatch_tls_set_dispatch_key_excluded
            _set_throw_on_mutable_data_ptr
        """,
        "torch.Tensor": "_make_subclass",
        "torch._dispatch.python": "enable_python_dispatcher",
        "torch._ops": "OpOverload OpOverloadPacket",
        "torch._subclasses.fake_tensor": "FakeTensor FakeTensorMode",
        "torch.utils": "_pytree",
        "torch.utils._mode_utils": "no_dispatch",
        "torch.utils._python_dispatch": "TorchDispatchMode _disable_current_modes autograd_would_have_decomposed",
        "torch.utils._pytree": "TreeSpec tree_leaves",
    },
}
bind(globals(), NAMES)
