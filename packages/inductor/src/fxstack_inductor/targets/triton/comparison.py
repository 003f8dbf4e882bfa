"""Compare the numbers of dropout in generated kernels with the numbers that torch draws, once for each GPU.

Which numbers eager's kernel draws is no promise of torch. A torch or GPU that draws others keeps ATen's dropout, and
a warning says so. The comparison draws from a generator of its own, so the program's generator stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor.lower.host.draws import VECTOR_BYTES, device_threads, drawing_from
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.targets.target import Compiled
from fxstack_inductor.torch_compat import disable_current_modes
from fxstack_interchange.user_warnings import warn_user

DROPOUT = torch.ops.aten.native_dropout.default
P = 0.3
"""The probability of dropping an element."""
SEED, OFFSET = 0x1234_5678_9ABC, 4 << 32
"""The generators' state at the first number."""

_RESULTS: dict[int, bool] = {}
"""The result of the comparison by the number of the device."""
_COMPARING = Lock()


def dropout_devices(graph_module: GraphModule) -> set[int]:
    """Return the numbers of the GPUs on which the graph calls dropout."""
    devices = (n.meta["val"][0].device for n in graph_module.graph.nodes if n.target is DROPOUT)
    return {device.index or 0 for device in devices if device.type == "cuda"}


def draws_like_eager(
    device: int, options: InductorOptions, load: Callable[[GraphModule, InductorOptions], Compiled]
) -> bool:
    """Whether kernels draw eager's numbers on GPU number ``device``; ``load`` compiles a graph with such kernels."""
    with _COMPARING:
        if device not in _RESULTS:
            difference = _difference(device, replace(options, cuda_graphs=False, dropout="generated"), load)
            if difference:
                warn_user(
                    f"fxstack: dropout on GPU {device} runs by ATen's kernel, not in generated kernels: {difference}. "
                    "The values are eager's in both cases.",
                    UserWarning,
                )
            _RESULTS[device] = not difference
        return _RESULTS[device]


def _difference(
    device: int, options: InductorOptions, load: Callable[[GraphModule, InductorOptions], Compiled]
) -> str:
    """Return how the numbers of generated kernels differ from eager's; empty if they are equal."""
    plain = torch.inference_mode(mode=False)  # compilation happens in the middle of the program
    with disable_current_modes(), plain, torch.no_grad(), torch.cuda.device(device):
        inputs = _inputs(device)
        theirs, ours = _generator(device), _generator(device)
        call = load(make_fx(_dropouts, tracing_mode="fake")(*inputs), options)
        with drawing_from(ours):
            actual = call(*inputs)
        expected = [result for x in inputs for result in _by_eager(x, theirs)]
        for position, (x, y) in enumerate(zip(actual, expected, strict=True)):
            if not torch.equal(x, y.to(x.dtype)):
                what = f"{inputs[position // 2].numel()} elements of {inputs[position // 2].dtype}"
                return f"torch {torch.__version__} draws other numbers for {what}"
        if ours.get_offset() != theirs.get_offset():
            return f"torch {torch.__version__} reserves another count of numbers"
    return ""


def _generator(device: int) -> Any:
    """Return a generator of the comparison's own, in a state that needs more than 32 bits."""
    generator: Any = torch.Generator(f"cuda:{device}")
    generator.manual_seed(SEED)
    generator.set_offset(OFFSET)
    return generator


def _by_eager(x: torch.Tensor, generator: Any) -> Sequence[torch.Tensor]:
    """Return the value and the mask of eager's dropout, drawn from ``generator``."""
    results: Sequence[torch.Tensor] = torch.ops.aten._fused_dropout.default(x, 1 - P, generator)
    return results


def _dropouts(*inputs: torch.Tensor) -> list[torch.Tensor]:
    """Return the values and masks of the inputs' dropouts."""
    return [result for x in inputs for result in DROPOUT(x, P, True)]


def _inputs(device: int) -> list[torch.Tensor]:
    """Return tensors of each vector size of eager's kernel, for which some of its threads take a second turn."""
    threads = device_threads(device) + 64

    def ones(elements: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.ones(elements, dtype=dtype, device=f"cuda:{device}")

    whole = [
        ones(threads * (VECTOR_BYTES // dtype.itemsize), dtype)
        for dtype in (torch.float32, torch.bfloat16, torch.float64)
    ]
    return [*whole, ones(4 * threads + 1, torch.float32)]
