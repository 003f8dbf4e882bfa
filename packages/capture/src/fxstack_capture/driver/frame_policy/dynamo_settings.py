"""The settings of ``torch._dynamo.config``: what each of them means for capture.

The table has a row for every setting of the supported releases of torch. A setting is read when a frame is
compiled. An option that was given to ``optimize`` precedes the setting.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from fxstack_capture.options import CaptureOptions
from fxstack_interchange.torch_facts.torch_settings import (
    NoEffect,
    Ours,
    Same,
    Table,
    options_from_environment,
    options_from_torch,
    register,
)

MODULE: Final = "torch._dynamo.config"


def _rows(because: str, names: str) -> Table:
    return dict.fromkeys(names.split(), NoEffect(because))


_SETTINGS: Table = {
    "recompile_limit": Same("recompile_limit"),
    "cache_size_limit": Same("recompile_limit"),
    "accumulated_recompile_limit": Same("accumulated_recompile_limit"),
    "accumulated_cache_size_limit": Same("accumulated_recompile_limit"),
    "fail_on_recompile_limit_hit": Same("fail_on_recompile_limit"),
    "fail_on_cache_limit_hit": Same("fail_on_recompile_limit"),
    "error_on_recompile": Same("error_on_recompile"),
    "verify_correctness": Same("verify_correctness"),
    "suppress_errors": Same("suppress_errors", bool, "TORCHDYNAMO_SUPPRESS_ERRORS"),
    "disable": Same("disable", bool, "TORCH_COMPILE_DISABLE"),
    "capture_scalar_outputs": Same("capture_scalar_outputs", bool, "TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS"),
    "capture_dynamic_output_shape_ops": Same(
        "capture_dynamic_output_shape_ops", bool, "TORCHDYNAMO_CAPTURE_DYNAMIC_OUTPUT_SHAPE_OPS"
    ),
    "automatic_dynamic_shapes": Same("automatic_dynamic", bool),
    "assume_static_by_default": Same("dynamic", lambda value: None if value else True),
    "specialize_int": Same("specialize_int", bool),
    "specialize_float": Same("specialize_float", bool),
    "reorderable_logging_functions": Same("reorderable_functions", frozenset),
    "ignore_logging_functions": Same("ignored_functions", frozenset),
    "ignore_logger_methods": Same("ignored_functions", frozenset),
    "only_allow_pt2_compliant_ops": Same("only_compliant_operators", bool),
    "rewrite_assert_with_torch_assert": Ours(
        "assume_checks", bool, because="a failed assertion runs the frame again in plain Python"
    ),
    "allow_unspec_int_on_nn_module": NoEffect("integers of modules become symbolic when they change, always"),
    "allow_rnn": NoEffect("recurrent layers are always captured"),
    "minimum_call_count": NoEffect("torch ignores it, too"),
    "replay_side_effects": NoEffect("side effects are always replayed"),
    "side_effect_replay_policy": NoEffect("side effects are always replayed, and nothing is logged of them"),
    "_shapes_spec": NoEffect("the argument dynamic_shapes of compile takes specifications"),
    "_dynamic_shapes_spec": NoEffect("the argument dynamic_shapes of compile takes specifications"),
    "computed_lazy_constant_max_nodes": NoEffect("constants are computed by Python while tracing"),
    "gc_gen2_threshold_during_compile": NoEffect("the garbage collector is paused while tracing"),
    "canonicalize_output_graph_node_order": NoEffect("nodes of a graph keep the order of the program"),
    "automatic_dynamic_shapes_mark_as": NoEffect("sizes that change are symbolic with the size of the call as hint"),
    "automatic_dynamic_exclusion_guard": NoEffect("the entry that was used last is tried first"),
    "force_parameter_static_shapes": NoEffect("sizes of parameters are constants unless they are marked"),
    "force_nn_module_property_static_shapes": NoEffect("attributes of modules become symbolic when they change"),
    "allow_ignore_mark_dynamic": NoEffect("maybe_mark_dynamic marks a size that may be specialised"),
    "prepare_freezing": NoEffect("the option freezing finds the parameters itself"),
    "optimize_ddp": NoEffect(
        "a compiled module in DDP is one graph; its buckets are reduced as in eager", except_for="python_reducer"
    ),
    "do_not_emit_runtime_asserts": NoEffect("graphs keep their assertions"),
    "prefer_deferred_runtime_asserts_over_guards": NoEffect("demands on sizes are guards"),
    "trace_numpy": NoEffect("calls of NumPy are always captured where that is exact"),
    "use_numpy_random_stream": NoEffect("NumPy's random numbers are always NumPy's own"),
    "inline_inbuilt_nn_modules": NoEffect("modules of torch are always inlined"),
    "allow_empty_graphs": NoEffect("a frame without an operation of torch is left in plain Python"),
    "graph_break_on_nn_param_ctor": NoEffect("constructors of parameters are captured where that is exact"),
    "capture_sparse_compute": NoEffect("sparse tensors end the graph"),
    "capture_profiler_record_function": Same("profiler_ranges", bool),
    "constant_fold_autograd_profiler_enabled": NoEffect("whether a profiler runs is a guard"),
    "skip_fwd_side_effects_in_bwd_under_checkpoint": NoEffect(
        "side effects in checkpointed regions end the graph"
    ),
    "compiled_autograd": Same("compiled_autograd", bool),
    "compiled_autograd_kwargs_override": NoEffect("graphs of backward passes are compiled as the program is"),
    "nontraceable_tensor_subclasses": NoEffect("subclasses without a model end the graph"),
    "enable_compiler_collectives": NoEffect("ranks share what they saw of sizes through ShapeProfile.merged"),
    "enable_p2p_compilation": NoEffect("point-to-point communication ends the graph"),
    "caching_precompile": NoEffect("compiled programs are stored on disk by the option use_cache"),
    "strict_precompile": NoEffect("compiled programs are stored on disk by the option use_cache"),
    "wrap_top_frame": NoEffect("hooks of a compiled module are always a part of its first frame"),
    "error_on_nested_fx_trace": NoEffect("a compiled callable runs its original under torch.fx.symbolic_trace"),
    "error_on_nested_jit_trace": NoEffect("a compiled callable runs its original under torch.jit.trace"),
    "force_compile_during_fx_trace": NoEffect("a compiled callable runs its original under another tracer"),
    "error_on_dynamo_callback_in_fullgraph_compiled_code": NoEffect("nothing is traced while compiled code runs"),
    "inline_torch_dispatch_torch_compile": NoEffect("nothing is compiled inside of __torch_dispatch__"),
    "enable_dynamo_decompositions": NoEffect("numbers out of tensors for arithmetic never end the graph"),
    **_rows("graph breaks never end the calling frames", "nested_graph_breaks"),
    **_rows("every guard that a graph needs is kept", "guard_nn_modules guard_nn_modules_using_dict_tags"
        " use_lamba_guard_for_object_aliasing skip_fsdp_guards skip_nnmodule_hook_guards"
        " skip_no_tensor_aliasing_guards_on_parameters skip_tensor_guards_with_matching_dict_tags"
        " skip_guards_on_constant_func_defaults assume_dunder_attributes_remain_unchanged"
        " use_recursive_dict_tags_for_guards max_saved_pointers_for_recursive_dict_tags_check"
        " _unsafe_skip_fsdp_module_guards enable_cpp_guard_manager enable_cpp_symbolic_shape_guards"
        " enable_cpp_framelocals_guard_eval"),
    **_rows("logs are those of the logger fxstack_capture, and of compile_log and explain", "log_file_name verbose"
        " log_graph_in_out_metadata report_guard_failures log_compilation_metrics cprofile dynamo_profiler"
        " record_compile_time_instruction_count record_runtime_overhead base_dir debug_dir_root generate_pycode"
        " issue_3_13_0_warning pt2_compile_id_prefix replay_record_enabled"),
    **_rows("the option repro_dir writes scripts that repeat a graph", "repro_after repro_level repro_forward_only"
        " repro_tolerance repro_ignore_non_fp same_two_models_use_fp64 debug_backend_override"
        " debug_inductor_config_override debug_dynamo_config_override"),
    **_rows("what is interpreted follows from the code itself", "skipfiles_inline_module_allowlist"
        " allowed_functions_module_string_ignorelist skip_torchrec dont_skip_tracing enable_trace_contextlib"
        " enable_trace_unittest enable_trace_load_build_class enable_faithful_generator_behavior"
        " trace_autograd_ops capture_autograd_function capture_func_transforms"),
    **_rows("torch ignores it, too", "dead_code_elimination dynamic_shapes traceable_tensor_subclasses"
        " optimize_ddp_lazy_compile skip_code_recursive_on_recompile_limit_hit"
        " skip_code_recursive_on_cache_limit_hit raise_on_ctx_manager_usage raise_on_unsafe_aot_autograd"),
    **_rows("NumPy's default dtypes are NumPy's own", "numpy_default_float numpy_default_complex numpy_default_int"),
    **_rows("graphs have every input as an argument, and each region once", "use_lazy_graph_module"
        " install_free_tensors install_free_tensors_for_export use_graph_deduplication"
        " track_nodes_for_deduplication graph_deduplication_lint inline_invoke_subgraph"
        " inline_single_use_invoke_subgraph enable_invoke_subgraph_regional_compile"),
    **_rows("it is for tests of torch's own compiler", "debug_force_nested_calls"
        " debug_force_graph_break_on_leaf_return debug_disable_compile_counter"
        " inject_BUILD_SET_unimplemented_TESTING_ONLY _custom_ops_profile leaf_function_validate_outputs"
        " leaf_function_check_escaped_gradients _autograd_backward_strict_mode_banned_ops"
        " _autograd_backward_strict_mode_conditional_banned_ops _save_config_ignore TYPE_CHECKING"
        " force_unspec_int_unbacked_size_like_on_torchrec_kjt enable_aot_compile"),
    **_rows("fake tensors, the garbage collector and profiles of sizes are handled here in another way",
        "fake_tensor_cache_enabled fake_tensor_cache_crosscheck_enabled fake_tensor_disable_inference_mode"
        " run_gc_after_compile automatic_dynamic_local_pgo automatic_dynamic_remote_pgo"
        " invalidate_compile_context_weakrefs"),
    **_rows("CUDA graphs are a mode of this project's backend", "cudagraph_backend_keep_input_mutation"
        " cudagraph_backend_support_input_mutation"),
}  # fmt: skip

register(MODULE, _SETTINGS)


def with_settings(options: CaptureOptions) -> CaptureOptions:
    """Return ``options`` with what the settings of torch say of those that have their default value."""
    return _completed(options, options_from_torch(MODULE))


def with_environment(options: CaptureOptions) -> CaptureOptions:
    """Return ``options`` with what variables of the environment say of those that have their default value."""
    return _completed(options, options_from_environment(MODULE))


def _completed(options: CaptureOptions, found: dict[str, Any]) -> CaptureOptions:
    # The other options are those of a package above this one.
    own = {name: value for name, value in found.items() if hasattr(_DEFAULTS, name)}
    new = {name: value for name, value in own.items() if getattr(options, name) == getattr(_DEFAULTS, name)}
    return dataclasses.replace(options, **new) if new else options


_DEFAULTS: Final = CaptureOptions()


def with_fullgraph(options: CaptureOptions) -> CaptureOptions:
    """Return ``options``; one whole graph takes numbers and sizes that depend on data, as torch's does."""
    takes_data = options.capture_scalar_outputs and options.capture_dynamic_output_shape_ops
    if takes_data or not options.fullgraph:
        return options
    return dataclasses.replace(options, capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True)
