"""The target for CPUs: C kernels with OpenMP, and a host program in C or Python."""

from __future__ import annotations

from torch.fx import GraphModule

from fxstack_inductor.options import InductorOptions
from fxstack_inductor.targets.c.artifact import Lowered
from fxstack_inductor.targets.c.load import load_c
from fxstack_inductor.targets.c.lower import C, lower_c
from fxstack_inductor.targets.target import Compiled, Target


class CTarget(Target):
    """C kernels with OpenMP on a CPU."""

    name = "c"
    device = "cpu"
    passes = C
    freezes = True
    writes_repros = True
    has_images = True

    def lower(
        self, graph_module: GraphModule, options: InductorOptions, name: str, *, boxed: bool = False
    ) -> Lowered:
        """Return the generated C; ``name`` must be "cpu"."""
        if name != self.device:
            raise ValueError(f"target {name!r}: the C compiler decides for which CPU it compiles, say 'cpu'")
        return lower_c(graph_module, options, boxed=boxed)

    def load(self, graph_module: GraphModule, options: InductorOptions, *, boxed: bool) -> Compiled:
        return load_c(graph_module, options, boxed=boxed)
