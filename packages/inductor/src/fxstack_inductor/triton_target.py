"""Graphs on CUDA: from the same schedule as for C, Triton kernels and a host program that launches them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fxstack_inductor.codegen.triton import TritonSource, triton_source
from fxstack_inductor.codegen.triton_host import device_program
from fxstack_inductor.errors import TritonMissing
from fxstack_inductor.lower.graph import lower_graph
from fxstack_inductor.lower.rules import RULES
from fxstack_inductor.schedule.plan import KernelStep, Plan, plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import GraphModule

    from fxstack_inductor.codegen.wrapper import HostProgram
    from fxstack_inductor.options import InductorOptions


@dataclass(frozen=True)
class LoweredTriton:
    """What a graph was lowered to: the schedule, the Triton module and the host program."""

    plan: Plan
    source: TritonSource
    program: HostProgram

    @property
    def triton(self) -> str:
        return self.source.text

    @property
    def host(self) -> str:
        return self.program.source


def lower_triton(graph_module: GraphModule, options: InductorOptions) -> LoweredTriton:
    """The generated code, on any machine; neither a GPU nor Triton is needed."""
    scheduled = plan(lower_graph(graph_module, RULES, options), options)
    kernels = [step.kernel for step in scheduled.steps if isinstance(step, KernelStep)]
    source = triton_source(kernels)
    names = {kernel: function.name for kernel, function in source.functions.items()}
    return LoweredTriton(scheduled, source, device_program(scheduled, names))


def compile_triton(
    graph_module: GraphModule, options: InductorOptions
) -> Callable[..., tuple[Any, ...]]:
    """A callable of the graph's inputs (on CPU where Triton runs its interpreter).

    Raises:
        TritonMissing: Triton is not installed.
    """
    runtime = triton_runtime()
    lowered = lower_triton(graph_module, options)
    namespace = dict(lowered.program.constants)
    if lowered.source.functions:
        folder = options.cache_dir / "triton"
        module = runtime.load_module(lowered.triton, folder)
        namespace |= runtime.launchers(lowered.source, module)
    code = compile(lowered.host, f"<fxstack {graph_module._get_name()}>", "exec")
    exec(code, namespace)  # noqa: S102 - the program was generated just above
    run: Callable[..., tuple[Any, ...]] = namespace["call"]
    return run


def triton_runtime() -> Any:
    """The module that needs Triton, imported where it is first used: Triton is optional."""
    try:
        from fxstack_inductor.runtime import triton_runtime as runtime  # noqa: PLC0415
    except ImportError as error:
        raise TritonMissing(
            "CUDA kernels need Triton, which cannot be imported "
            f"({error}): pip install 'fxstack-inductor[cuda]'"
        ) from error
    return runtime
