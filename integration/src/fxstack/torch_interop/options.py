"""Translate the options of ``torch.compile``, so that a program that moves here keeps its ``options``.

An option of torch is another name of an option here, or describes behaviour that is fixed. An option that
cannot be followed causes a warning and changes nothing: these options affect how code is compiled, never its
results.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class Renamed:
    """An option that has another name here."""

    ours: str


@dataclass(frozen=True, slots=True)
class FixedOption:
    """An option whose behaviour is fixed. ``value`` is the setting that requests that behaviour, or None."""

    value: bool | None
    because: str


_LOOPS = "tiles and unrolling of kernels follow from rules"
_FUSED = "kernels are fused wherever the scheduler finds that it pays"
_REPORT = "see fxstack.compile_log, and the option repro_dir"

TORCH_OPTIONS: Mapping[str, Renamed | FixedOption] = MappingProxyType(
    {
        "max_autotune": Renamed("autotune"),
        "max_autotune_gemm": Renamed("autotune"),
        "triton.cudagraphs": Renamed("cuda_graphs"),
        "emulate_precision_casts": Renamed("eager_rounding"),
        "fx_graph_cache": Renamed("use_cache"),
        "aggressive_fusion": FixedOption(False, _FUSED),
        "allow_buffer_reuse": FixedOption(True, "memory of intermediate results is reused"),
        "benchmark_fusion": FixedOption(False, _FUSED),
        "combo_kernels": FixedOption(False, _FUSED),
        "conv_1x1_as_mm": FixedOption(False, "convolutions are the library's"),
        "coordinate_descent_tuning": FixedOption(False, _LOOPS),
        "cpp.simdlen": FixedOption(None, "vectors are as wide as the processor's"),
        "cpp.threads": FixedOption(None, "kernels use torch.get_num_threads() threads"),
        "cpp_wrapper": FixedOption(True, "the host program is native where this Python allows it"),
        "dce": FixedOption(True, "unused results are not computed"),
        "debug": FixedOption(False, _REPORT),
        "epilogue_fusion": FixedOption(True, _FUSED),
        "fallback_random": FixedOption(True, "random numbers are always those that eager would draw"),
        "group_fusion": FixedOption(False, _FUSED),
        "implicit_fallbacks": FixedOption(True, "operators without a rule are calls of their kernels"),
        "inplace_buffers": FixedOption(True, "results are written over what is not used any more"),
        "keep_output_stride": FixedOption(True, "results are always laid out as eager's"),
        "layout_optimization": FixedOption(False, "tensors are laid out as eager lays them out"),
        "loop_ordering_after_fusion": FixedOption(True, _FUSED),
        "max_autotune_pointwise": FixedOption(False, _LOOPS),
        "permute_fusion": FixedOption(True, _FUSED),
        "shape_padding": FixedOption(False, "operands of matrix products are not padded"),
        "size_asserts": FixedOption(True, "sizes and strides are guarded"),
        "split_reductions": FixedOption(True, "reductions are split where it pays"),
        "trace.enabled": FixedOption(False, _REPORT),
        "trace.graph_diagram": FixedOption(False, _REPORT),
        "triton.cudagraph_trees": FixedOption(True, "results of CUDA graphs are the caller's own"),
        "triton.unique_kernel_names": FixedOption(True, "kernels are named after what they compute"),
    }
)


def in_our_words(options: Mapping[str, Any], ours: frozenset[str]) -> dict[str, Any]:
    """Return ``options`` with torch's names translated. Names in ``ours`` and unknown names stay.

    Raises:
        ValueError: if a switch of torch has another value than True or False.
    """
    translated = {n: v for n, v in options.items() if n in ours or n not in TORCH_OPTIONS}
    ignored = []
    for name, value in options.items():
        if name in translated:
            continue
        meaning = TORCH_OPTIONS[name]
        is_switch = isinstance(meaning, Renamed) or meaning.value is not None
        if is_switch and not isinstance(value, bool):
            message = f"fxstack.compile: option {name!r} must be True or False, not {value!r}."
            raise ValueError(message)
        if isinstance(meaning, Renamed):
            translated.setdefault(meaning.ours, value)
        elif value is not meaning.value:
            ignored.append(f"{name}={value!r} ({meaning.because})")
    if ignored:
        text = "fxstack.compile: these options of torch.compile have no effect here: "
        warnings.warn(text + "; ".join(sorted(ignored)), stacklevel=4)
    return translated
