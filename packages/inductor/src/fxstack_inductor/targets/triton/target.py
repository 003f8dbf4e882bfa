"""The target for NVIDIA GPUs: Triton kernels, and a host program in C or Python."""

from __future__ import annotations

from typing import Any

from torch.fx import GraphModule

from fxstack_inductor.options import InductorOptions
from fxstack_inductor.targets.target import Compiled, Target
from fxstack_inductor.targets.triton.artifact import LoweredTriton
from fxstack_inductor.targets.triton.load import compile_for_device
from fxstack_inductor.targets.triton.lower import TRITON, lower_triton


class TritonTarget(Target):
    """Triton kernels on an NVIDIA GPU; with ``TRITON_INTERPRET=1``, in Triton's interpreter on a CPU."""

    name = "triton"
    device = "cuda"
    passes = TRITON
    has_attention = True

    def lower(
        self, graph_module: GraphModule, options: InductorOptions, name: str, *, boxed: bool = False
    ) -> LoweredTriton:
        return lower_triton(graph_module, options, target=name, boxed=boxed)

    def load(self, graph_module: GraphModule, options: InductorOptions, *, boxed: bool) -> Compiled:
        call = compile_for_device(graph_module, options, boxed=boxed)
        return _boxed(call) if boxed and not vars(call)["boxed"] else call


def _boxed(call: Compiled) -> Compiled:
    """Return ``call``, a recording with static inputs, as a function of one list."""

    def run(args: list[Any]) -> tuple[Any, ...]:
        return call(*args)

    vars(run).update(boxed=True, lowered=vars(call)["lowered"])
    return run
