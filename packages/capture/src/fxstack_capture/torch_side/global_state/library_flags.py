"""Getters of flags of torch and its libraries. A flag says, for example, which kernels torch may choose or
when it warns.

The value of a flag is a constant of the graph, and a guard calls the getter. Setting a flag breaks the graph,
because operators before the call need the old value, and operators after the call need the new value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fxstack_capture import torch_compat

_NAMES = (
    *("_get_cudnn_enabled", "_get_cudnn_benchmark", "_get_cudnn_deterministic"),
    *("_get_cudnn_allow_tf32", "_get_mkldnn_enabled", "_get_mkldnn_deterministic"),
    *("_get_onednn_allow_tf32", "_get_nnpack_enabled", "_get_cublas_allow_tf32"),
    *("_get_cublas_allow_fp16_reduced_precision_reduction", "_get_miopen_immediate"),
    *("_get_cublas_allow_bf16_reduced_precision_reduction", "_get_float32_matmul_precision"),
    *("_get_cublas_allow_fp16_accumulation", "_get_math_sdp_allow_fp16_bf16_reduction"),
    *("_get_cpu_allow_fp16_reduced_precision_reduction", "_get_fp32_precision_getter"),
    *("_get_warnAlways", "_get_deterministic_fill_uninitialized_memory", "_get_cpu_capability"),
    "_get_cudnn_depthwise_kernel",
    *("_is_multithreading_enabled", "_is_view_replay_enabled"),
)

GETTERS: tuple[Callable[..., Any], ...] = (
    torch.get_num_interop_threads,
    torch.is_anomaly_enabled,
    torch.is_anomaly_check_nan_enabled,
    *(getter for name in _NAMES if (getter := getattr(torch_compat.C, name, None)) is not None),
)
"""C functions that return booleans, strings or numbers."""
