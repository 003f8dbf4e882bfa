"""The table of torch's compiler settings: what each setting does in fxstack.

Each row is a ``Setting``, by module and name. A name that ends in ``*`` stands for all settings with this beginning
that have no row of their own. ``torch_settings`` reads the table. The rows cover every setting of
``torch._dynamo.config``, ``torch._inductor.config`` and ``torch._functorch.config`` in the supported releases of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

DYNAMO: Final = "torch._dynamo.config"
INDUCTOR: Final = "torch._inductor.config"
FUNCTORCH: Final = "torch._functorch.config"


def _same(value: Any) -> Any:
    return value


def _is_one(text: str) -> bool:
    return text == "1"


def _not(value: object) -> bool:
    return not value


@dataclass(frozen=True, slots=True)
class Setting:
    """What one setting of torch's compiler, or a group of settings, does in fxstack."""

    option: str | None
    """The option of a stage that the setting sets; None: the setting has no effect."""
    convert: Callable[[Any], Any] = _same
    """Function from the value of the setting to the value of the option."""
    variable: str = ""
    """The environment variable from which torch reads the setting; "" if fxstack does not read it."""
    parse: Callable[[str], Any] = _is_one
    """Function from the text of ``variable`` to the value of the setting."""
    because: str = ""
    """Why the setting has no effect, or how the option differs from the setting."""
    fixed: object = None
    """The value that requests fxstack's fixed behaviour, for a setting without effect. This value needs no warning."""

    @property
    def is_switch(self) -> bool:
        """Return whether the setting takes only True and False."""
        return self.convert in (bool, _not) or isinstance(self.fixed, bool)


Table = Mapping[str, Setting]


def _no_effect(because: str, fixed: object = None) -> Setting:
    return Setting(None, because=because, fixed=fixed)


def _no_effects(because: str, names: str) -> Table:
    return dict.fromkeys(names.split(), _no_effect(because))


_MINIFIES = "the first call of each graph is checked, and fxstack minify writes a script"

_DYNAMO: Final[Table] = {
    "recompile_limit": Setting("recompile_limit"),
    "cache_size_limit": Setting("recompile_limit"),
    "accumulated_recompile_limit": Setting("accumulated_recompile_limit"),
    "accumulated_cache_size_limit": Setting("accumulated_recompile_limit"),
    "fail_on_recompile_limit_hit": Setting("fail_on_recompile_limit"),
    "fail_on_cache_limit_hit": Setting("fail_on_recompile_limit"),
    "error_on_recompile": Setting("error_on_recompile"),
    "verify_correctness": Setting("verify_correctness"),
    "suppress_errors": Setting("suppress_errors", bool, "TORCHDYNAMO_SUPPRESS_ERRORS"),
    "disable": Setting("disable", bool, "TORCH_COMPILE_DISABLE"),
    "capture_scalar_outputs": Setting("capture_scalar_outputs", bool, "TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS"),
    "capture_dynamic_output_shape_ops": Setting(
        "capture_dynamic_output_shape_ops", bool, "TORCHDYNAMO_CAPTURE_DYNAMIC_OUTPUT_SHAPE_OPS"
    ),
    "automatic_dynamic_shapes": Setting("automatic_dynamic", bool),
    "assume_static_by_default": Setting("dynamic", lambda value: None if value else True),
    "specialize_int": Setting("specialize_int", bool),
    "specialize_float": Setting("specialize_float", bool),
    "reorderable_logging_functions": Setting("reorderable_functions", frozenset),
    "ignore_logging_functions": Setting("ignored_functions", frozenset),
    "ignore_logger_methods": Setting("ignored_functions", frozenset),
    "only_allow_pt2_compliant_ops": Setting("only_compliant_operators", bool),
    "rewrite_assert_with_torch_assert": Setting(
        "assume_checks", bool, because="a failed assertion runs the frame again in plain Python"
    ),
    "allow_unspec_int_on_nn_module": _no_effect("integers of modules become symbolic when they change, always"),
    "allow_rnn": _no_effect("recurrent layers are always captured"),
    "minimum_call_count": _no_effect("torch ignores it, too"),
    "replay_side_effects": _no_effect("side effects are always replayed"),
    "side_effect_replay_policy": _no_effect("side effects are always replayed, and nothing is logged of them"),
    "_shapes_spec": _no_effect("the argument dynamic_shapes of compile takes specifications"),
    "_dynamic_shapes_spec": _no_effect("the argument dynamic_shapes of compile takes specifications"),
    "computed_lazy_constant_max_nodes": _no_effect("constants are computed by Python while tracing"),
    "gc_gen2_threshold_during_compile": _no_effect("the garbage collector is paused while tracing"),
    "canonicalize_output_graph_node_order": _no_effect("nodes of a graph keep the order of the program"),
    "automatic_dynamic_shapes_mark_as": _no_effect("sizes that change are symbolic with the size of the call as hint"),
    "automatic_dynamic_exclusion_guard": _no_effect("the entry that was used last is tried first"),
    "force_parameter_static_shapes": _no_effect("sizes of parameters are constants unless they are marked"),
    "force_nn_module_property_static_shapes": _no_effect("attributes of modules become symbolic when they change"),
    "allow_ignore_mark_dynamic": _no_effect("maybe_mark_dynamic marks a size that may be specialised"),
    "prepare_freezing": _no_effect("the option freezing finds the parameters itself"),
    "optimize_ddp": _no_effect(
        "a compiled module in DDP is one graph; its buckets are reduced as in eager", fixed="python_reducer"
    ),
    "do_not_emit_runtime_asserts": _no_effect("graphs keep their assertions"),
    "prefer_deferred_runtime_asserts_over_guards": _no_effect("demands on sizes are guards"),
    "trace_numpy": _no_effect("calls of NumPy are always captured where that is exact"),
    "use_numpy_random_stream": _no_effect("NumPy's random numbers are always NumPy's own"),
    "inline_inbuilt_nn_modules": _no_effect("modules of torch are always inlined"),
    "allow_empty_graphs": _no_effect("a frame without an operation of torch is left in plain Python"),
    "graph_break_on_nn_param_ctor": _no_effect("constructors of parameters are captured where that is exact"),
    "capture_sparse_compute": _no_effect("sparse tensors end the graph"),
    "capture_profiler_record_function": Setting("profiler_ranges", bool),
    "constant_fold_autograd_profiler_enabled": _no_effect("whether a profiler runs is a guard"),
    "skip_fwd_side_effects_in_bwd_under_checkpoint": _no_effect(
        "side effects in checkpointed regions end the graph"
    ),
    "compiled_autograd": Setting("compiled_autograd", bool),
    "compiled_autograd_kwargs_override": _no_effect("graphs of backward passes are compiled as the program is"),
    "nontraceable_tensor_subclasses": _no_effect("subclasses without a model end the graph"),
    "enable_compiler_collectives": _no_effect("ranks share what they saw of sizes through ShapeProfile.merged"),
    "enable_p2p_compilation": _no_effect("point-to-point communication ends the graph"),
    "caching_precompile": _no_effect("compiled programs are stored on disk by the option use_cache"),
    "strict_precompile": _no_effect("compiled programs are stored on disk by the option use_cache"),
    "wrap_top_frame": _no_effect("hooks of a compiled module are always a part of its first frame"),
    "error_on_nested_fx_trace": _no_effect("a compiled callable runs its original under torch.fx.symbolic_trace"),
    "error_on_nested_jit_trace": _no_effect("a compiled callable runs its original under torch.jit.trace"),
    "force_compile_during_fx_trace": _no_effect("a compiled callable runs its original under another tracer"),
    "error_on_dynamo_callback_in_fullgraph_compiled_code": _no_effect("nothing is traced while compiled code runs"),
    "inline_torch_dispatch_torch_compile": _no_effect("nothing is compiled inside of __torch_dispatch__"),
    "enable_dynamo_decompositions": _no_effect("numbers out of tensors for arithmetic never end the graph"),
    **_no_effects("graph breaks never end the calling frames", "nested_graph_breaks"),
    **_no_effects("every guard that a graph needs is kept", "guard_nn_modules guard_nn_modules_using_dict_tags"
        " use_lamba_guard_for_object_aliasing skip_fsdp_guards skip_nnmodule_hook_guards"
        " skip_no_tensor_aliasing_guards_on_parameters skip_tensor_guards_with_matching_dict_tags"
        " skip_guards_on_constant_func_defaults assume_dunder_attributes_remain_unchanged"
        " use_recursive_dict_tags_for_guards max_saved_pointers_for_recursive_dict_tags_check"
        " _unsafe_skip_fsdp_module_guards enable_cpp_guard_manager enable_cpp_symbolic_shape_guards"
        " enable_cpp_framelocals_guard_eval"),
    **_no_effects("logs are those of the logger fxstack_capture, and of compile_log and explain", "log_file_name verbose"
        " log_graph_in_out_metadata report_guard_failures log_compilation_metrics cprofile dynamo_profiler"
        " record_compile_time_instruction_count record_runtime_overhead base_dir debug_dir_root generate_pycode"
        " issue_3_13_0_warning pt2_compile_id_prefix replay_record_enabled"),
    "repro_after": Setting("repro_after", str, "TORCHDYNAMO_REPRO_AFTER", str, _MINIFIES),
    "repro_level": Setting("repro_level", int, "TORCHDYNAMO_REPRO_LEVEL", int, _MINIFIES),
    **_no_effects("the option repro_dir writes scripts that repeat a graph",
        "repro_forward_only repro_tolerance repro_ignore_non_fp same_two_models_use_fp64 debug_backend_override"
        " debug_inductor_config_override debug_dynamo_config_override"),
    **_no_effects("what is interpreted follows from the code itself", "skipfiles_inline_module_allowlist"
        " allowed_functions_module_string_ignorelist skip_torchrec dont_skip_tracing enable_trace_contextlib"
        " enable_trace_unittest enable_trace_load_build_class enable_faithful_generator_behavior"
        " trace_autograd_ops capture_autograd_function capture_func_transforms"),
    **_no_effects("torch ignores it, too", "dead_code_elimination dynamic_shapes traceable_tensor_subclasses"
        " optimize_ddp_lazy_compile skip_code_recursive_on_recompile_limit_hit"
        " skip_code_recursive_on_cache_limit_hit raise_on_ctx_manager_usage raise_on_unsafe_aot_autograd"),
    **_no_effects("NumPy's default dtypes are NumPy's own", "numpy_default_float numpy_default_complex numpy_default_int"),
    **_no_effects("graphs have every input as an argument, and each region once", "use_lazy_graph_module"
        " install_free_tensors install_free_tensors_for_export use_graph_deduplication"
        " track_nodes_for_deduplication graph_deduplication_lint inline_invoke_subgraph"
        " inline_single_use_invoke_subgraph enable_invoke_subgraph_regional_compile"),
    **_no_effects("it is for tests of torch's own compiler", "debug_force_nested_calls"
        " debug_force_graph_break_on_leaf_return debug_disable_compile_counter"
        " inject_BUILD_SET_unimplemented_TESTING_ONLY _custom_ops_profile leaf_function_validate_outputs"
        " leaf_function_check_escaped_gradients _autograd_backward_strict_mode_banned_ops"
        " _autograd_backward_strict_mode_conditional_banned_ops _save_config_ignore TYPE_CHECKING"
        " force_unspec_int_unbacked_size_like_on_torchrec_kjt enable_aot_compile"),
    **_no_effects("fake tensors, the garbage collector and profiles of sizes are handled here in another way",
        "fake_tensor_cache_enabled fake_tensor_cache_crosscheck_enabled fake_tensor_disable_inference_mode"
        " run_gc_after_compile automatic_dynamic_local_pgo automatic_dynamic_remote_pgo"
        " invalidate_compile_context_weakrefs"),
    **_no_effects("CUDA graphs are a mode of this project's backend", "cudagraph_backend_keep_input_mutation"
        " cudagraph_backend_support_input_mutation"),
}  # fmt: skip


_LOOPS = "tiles and unrolling of kernels follow from rules"
_FUSED = "kernels are fused wherever the scheduler finds that it pays"
_REPORT = "see fxstack.compile_log, and the option repro_dir"

_INDUCTOR: Final[Table] = {
    "max_autotune": Setting("autotune", bool),
    "max_autotune_gemm": Setting("autotune", bool),
    "triton.cudagraphs": Setting("cuda_graphs", bool),
    "emulate_precision_casts": Setting("eager_rounding", bool),
    "fx_graph_cache": Setting("use_cache", bool),
    "freezing": Setting("freezing", bool),
    "nan_asserts": Setting("nan_asserts", bool),
    "force_disable_caches": Setting("use_cache", _not),
    "aggressive_fusion": _no_effect(_FUSED, fixed=False),
    "allow_buffer_reuse": _no_effect("memory of intermediate results is reused", fixed=True),
    "benchmark_fusion": _no_effect(_FUSED, fixed=False),
    "combo_kernels": _no_effect(_FUSED, fixed=False),
    "conv_1x1_as_mm": _no_effect("convolutions are the library's", fixed=False),
    "coordinate_descent_tuning": _no_effect(_LOOPS, fixed=False),
    "cpp.simdlen": _no_effect("vectors are as wide as the processor's"),
    "cpp.threads": _no_effect("kernels use torch.get_num_threads() threads"),
    "cpp_wrapper": _no_effect("the host program is native where this Python allows it", fixed=True),
    "dce": _no_effect("unused results are not computed", fixed=True),
    "debug": _no_effect(_REPORT, fixed=False),
    "epilogue_fusion": _no_effect(_FUSED, fixed=True),
    "fallback_random": _no_effect("random numbers are always those that eager would draw", fixed=True),
    "group_fusion": _no_effect(_FUSED, fixed=False),
    "implicit_fallbacks": _no_effect("operators without a rule are calls of their kernels", fixed=True),
    "inplace_buffers": _no_effect("results are written over what is not used any more", fixed=True),
    "keep_output_stride": _no_effect("results are always laid out as eager's", fixed=True),
    "layout_optimization": Setting("channels_last", bool),
    "loop_ordering_after_fusion": _no_effect(_FUSED, fixed=True),
    "max_autotune_pointwise": _no_effect(_LOOPS, fixed=False),
    "max_autotune_*": _no_effect(
        "the option autotune chooses among the kernels of fxstack and of the library"
    ),
    "permute_fusion": _no_effect(_FUSED, fixed=True),
    "shape_padding": _no_effect("operands of matrix products are not padded", fixed=False),
    "size_asserts": _no_effect("sizes and strides are guarded", fixed=True),
    "split_reductions": _no_effect("reductions are split where it pays", fixed=True),
    "trace.enabled": _no_effect(_REPORT, fixed=False),
    "trace.graph_diagram": _no_effect(_REPORT, fixed=False),
    "triton.cudagraph_trees": _no_effect("results of CUDA graphs are the caller's own", fixed=True),
    "triton.unique_kernel_names": _no_effect("kernels are named after what they compute", fixed=True),
    "pre_grad_custom_pass": _no_effect("passes over graphs belong into a backend around the backend"),
    "joint_custom_pre_pass": _no_effect("passes over the joint graph belong into a partitioner"),
    "joint_custom_post_pass": _no_effect("passes over the joint graph belong into a partitioner"),
    "custom_partitioner_fn": _no_effect("the option partitioner takes a partitioner"),
    "_fuse_ddp_communication": _no_effect("each gradient is reduced by its own call", fixed=True),
    "cpp.*": _no_effect("the options compiler and optimization configure C"),
    "triton.cudagraph_*": _no_effect("CUDA graphs are recorded and dropped by rules"),
    "triton.*": _no_effect("tiles and launches of kernels follow from rules"),
    "cuda.*": _no_effect("kernels for CUDA are written in Triton"),
    "trace.*": _no_effect(_REPORT),
    "aot_inductor.*": _no_effect("compiled programs are stored on disk by themselves"),
    "*": _no_effect("it configures the code generator of torch's compiler, which does not run"),
}

_FUNCTORCH: Final[Table] = {
    "activation_memory_budget": Setting(
        "budget", because="the budget is a share of the memory of a simulated step"
    ),
    "activation_memory_budget_*": _no_effect("the solver is exact on a frontier of simulated steps"),
    "functionalize_rng_ops": _no_effect("the option functional_random makes draws functions of a state"),
    "enable_autograd_cache": _no_effect("the option use_cache turns the cache off"),
    "recompute_views": _no_effect("views are recomputed where this frees memory"),
    "aggressive_recomputation": _no_effect("activation_memory_budget asks for more recomputation"),
    "*": _no_effect("it configures the autograd frontend of torch's compiler, which does not run"),
}

TABLES: Final[Mapping[str, Table]] = {DYNAMO: _DYNAMO, INDUCTOR: _INDUCTOR, FUNCTORCH: _FUNCTORCH}
"""The settings by module and name."""
