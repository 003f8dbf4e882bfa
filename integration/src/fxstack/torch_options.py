"""Translate the options of ``torch.compile``, so that a program that moves here keeps its ``options``.

An option of torch is another name of an option here, or describes behaviour that is fixed. An option that
cannot be followed causes a warning and changes nothing: these options affect how code is compiled, never its
results. The same table gives the meanings of the settings of ``torch._inductor.config``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch

from fxstack_interchange.torch_facts.torch_errors import CompilerError
from fxstack_interchange.torch_facts.torch_settings import NoEffect, Same, Table, meaning, register
from fxstack_interchange.user_warnings import warn_user

INDUCTOR: Final = "torch._inductor.config"


class OptionError(CompilerError, ValueError):
    """A mode or option is unknown, or has a value that it cannot have. Torch raises RuntimeError."""


def _not(value: object) -> bool:
    return not value


_LOOPS = "tiles and unrolling of kernels follow from rules"
_FUSED = "kernels are fused wherever the scheduler finds that it pays"
_REPORT = "see fxstack.compile_log, and the option repro_dir"

TORCH_OPTIONS: Table = {
    "max_autotune": Same("autotune", bool),
    "max_autotune_gemm": Same("autotune", bool),
    "triton.cudagraphs": Same("cuda_graphs", bool),
    "emulate_precision_casts": Same("eager_rounding", bool),
    "fx_graph_cache": Same("use_cache", bool),
    "freezing": Same("freezing", bool),
    "nan_asserts": Same("nan_asserts", bool),
    "force_disable_caches": Same("use_cache", _not),
    "aggressive_fusion": NoEffect(_FUSED, except_for=False),
    "allow_buffer_reuse": NoEffect("memory of intermediate results is reused", except_for=True),
    "benchmark_fusion": NoEffect(_FUSED, except_for=False),
    "combo_kernels": NoEffect(_FUSED, except_for=False),
    "conv_1x1_as_mm": NoEffect("convolutions are the library's", except_for=False),
    "coordinate_descent_tuning": NoEffect(_LOOPS, except_for=False),
    "cpp.simdlen": NoEffect("vectors are as wide as the processor's"),
    "cpp.threads": NoEffect("kernels use torch.get_num_threads() threads"),
    "cpp_wrapper": NoEffect("the host program is native where this Python allows it", except_for=True),
    "dce": NoEffect("unused results are not computed", except_for=True),
    "debug": NoEffect(_REPORT, except_for=False),
    "epilogue_fusion": NoEffect(_FUSED, except_for=True),
    "fallback_random": NoEffect("random numbers are always those that eager would draw", except_for=True),
    "group_fusion": NoEffect(_FUSED, except_for=False),
    "implicit_fallbacks": NoEffect("operators without a rule are calls of their kernels", except_for=True),
    "inplace_buffers": NoEffect("results are written over what is not used any more", except_for=True),
    "keep_output_stride": NoEffect("results are always laid out as eager's", except_for=True),
    "layout_optimization": NoEffect("tensors are laid out as eager lays them out", except_for=False),
    "loop_ordering_after_fusion": NoEffect(_FUSED, except_for=True),
    "max_autotune_pointwise": NoEffect(_LOOPS, except_for=False),
    "max_autotune_*": NoEffect("the option autotune chooses among the kernels of fxstack and of the library"),
    "permute_fusion": NoEffect(_FUSED, except_for=True),
    "shape_padding": NoEffect("operands of matrix products are not padded", except_for=False),
    "size_asserts": NoEffect("sizes and strides are guarded", except_for=True),
    "split_reductions": NoEffect("reductions are split where it pays", except_for=True),
    "trace.enabled": NoEffect(_REPORT, except_for=False),
    "trace.graph_diagram": NoEffect(_REPORT, except_for=False),
    "triton.cudagraph_trees": NoEffect("results of CUDA graphs are the caller's own", except_for=True),
    "triton.unique_kernel_names": NoEffect("kernels are named after what they compute", except_for=True),
    "pre_grad_custom_pass": NoEffect("passes over graphs belong into a backend around the backend"),
    "joint_custom_pre_pass": NoEffect("passes over the joint graph belong into a partitioner"),
    "joint_custom_post_pass": NoEffect("passes over the joint graph belong into a partitioner"),
    "custom_partitioner_fn": NoEffect("the option partitioner takes a partitioner"),
    "_fuse_ddp_communication": NoEffect("each gradient is reduced by its own call", except_for=True),
    "cpp.*": NoEffect("the options compiler and optimization configure C"),
    "triton.cudagraph_*": NoEffect("CUDA graphs are recorded and dropped by rules"),
    "triton.*": NoEffect("tiles and launches of kernels follow from rules"),
    "cuda.*": NoEffect("kernels for CUDA are written in Triton"),
    "trace.*": NoEffect(_REPORT),
    "aot_inductor.*": NoEffect("compiled programs are stored on disk by themselves"),
    "*": NoEffect("it configures the code generator of torch's compiler, which does not run"),
}
register(INDUCTOR, TORCH_OPTIONS)

TORCH_MODES: Mapping[str, str] = {
    "lite": "it turns off optimizations of torch's compiler, which does not run"
}
"""Modes of torch that are the default mode here, with the reason."""


@cache
def names_of_torch() -> frozenset[str]:
    """Return the settings of the installed torch, by its source: importing the module loads torch's compiler.

    The set is empty where torch is installed without sources.
    """
    file = Path(torch.__file__).parent.joinpath("_inductor", "config.py")
    body = ast.parse(file.read_text("utf-8")).body if file.exists() else []
    classes = {statement.name: statement for statement in body if isinstance(statement, ast.ClassDef)}
    return frozenset(_settings(body, "", classes))


def _settings(body: Sequence[ast.stmt], prefix: str, classes: Mapping[str, ast.ClassDef]) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            bases = [classes[base.id] for base in statement.bases if isinstance(base, ast.Name)]
            for cls in (statement, *bases):
                yield from _settings(cls.body, f"{prefix}{statement.name}.", classes)
        elif isinstance(statement, ast.If):
            yield from _settings([*statement.body, *statement.orelse], prefix, classes)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from (prefix + target.id for target in targets if isinstance(target, ast.Name))


def _meaning(name: str) -> Same | NoEffect | None:
    known = name in TORCH_OPTIONS or name in names_of_torch()
    return meaning(INDUCTOR, name) if known else None


def in_our_words(options: Mapping[str, Any], ours: frozenset[str]) -> dict[str, Any]:
    """Return ``options`` with torch's names translated. Names in ``ours`` and unknown names stay.

    Raises:
        OptionError: if a switch of torch has another value than True or False.
    """
    translated = {name: value for name, value in options.items() if name in ours}
    ignored = []
    for name, value in options.items():
        if name in ours:
            continue
        row = _meaning(name.replace("-", "_"))  # as torch reads names
        if row is None:
            translated[name] = value
            continue
        is_switch = isinstance(row, Same) or row.except_for is not None
        if is_switch and not isinstance(value, bool):
            raise OptionError(f"fxstack.compile: option {name!r} must be True or False, not {value!r}.")
        if isinstance(row, Same):
            translated.setdefault(row.option, row.convert(value))
        elif value is not row.except_for:
            ignored.append(f"{name}={value!r} ({row.because})")
    if ignored:
        text = "fxstack.compile: these options of torch.compile have no effect here: "
        warn_user(text + "; ".join(sorted(ignored)), UserWarning)
    return translated
