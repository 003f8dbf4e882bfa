"""Load lowered CUDA graphs: load machine code, link the host program and, on request, record CUDA graphs."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from fxstack_inductor import torch_compat
from fxstack_inductor.codegen.host.native_device import RECORDS, native_device_program, native_device_refusal
from fxstack_inductor.codegen.host.program import HostProgram
from fxstack_inductor.codegen.host.python_host import link_constants
from fxstack_inductor.errors import TRITON_HINT, TritonMissing
from fxstack_inductor.lower.host.draws import has_philox_state
from fxstack_inductor.lower.nested.graphs import NestedGraph
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.runtime.cubins import Cubin, load_cubins
from fxstack_inductor.runtime.cuda_driver import Driver, Launchers
from fxstack_inductor.runtime.cuda_graphs import GraphedCall, capture_on_device, stream_of
from fxstack_inductor.runtime.loader import load_library, writable
from fxstack_inductor.runtime.native import bind
from fxstack_inductor.schedule.int32_indexing import too_large
from fxstack_inductor.schedule.steps import Plan
from fxstack_inductor.targets.target import Compiled
from fxstack_inductor.targets.triton.artifact import LoweredTriton, graph_refusal, plan_tensors
from fxstack_inductor.targets.triton.comparison import draws_like_eager, dropout_devices
from fxstack_inductor.targets.triton.lower import lower_triton, on_cuda, records_graphs, uses_interpreter
from fxstack_interchange.operators.origins import SOURCE
from fxstack_interchange.user_warnings import warn_user


def compile_for_device(
    graph_module: GraphModule, options: InductorOptions, *, boxed: bool = False
) -> Compiled:
    """Return the compiled graph; for sizes beyond 32-bit indices, the callable compiles the graph once more.

    Raises the errors of ``load_triton``.
    """

    def load(*, wide: bool) -> Compiled:
        parts = load_triton(graph_module, options, boxed=boxed, wide=wide)
        return device_callable(*parts, options)

    run = load(wide=False)
    lowered: LoweredTriton = vars(run)["lowered"]
    if not lowered.limits:
        return run
    check = too_large(lowered.limits, lowered.plan.program)
    # Calls of such sizes are rare, so the second compilation waits for the first of them.
    widened = lru_cache(maxsize=1)(lambda: load(wide=True))

    def run_checked(*args: Any) -> tuple[Any, ...]:
        return (widened() if check(args[0] if lowered.boxed else args) else run)(*args)

    run_checked.__dict__.update(run.__dict__)
    return run_checked


def load_triton(
    graph_module: GraphModule,
    options: InductorOptions,
    *,
    boxed: bool = False,
    wide: bool = False,
    draws: bool | None = None,
) -> tuple[LoweredTriton, Compiled]:
    """Return the generated code and a callable of the graph's inputs (on CPU with Triton's interpreter).

    ``draws``: kernels draw the random numbers of dropout; None: as ``options.dropout`` says.

    Raises:
        ValueError: the graph's tensors are on CPU, and the interpreter is off.
        TritonMissing: Triton is needed and not installed.
        CudaError: the driver cannot be used.
    """
    interpreted = uses_interpreter()
    if not interpreted and not on_cuda(graph_module):
        raise ValueError(
            "target='cuda' was asked for a graph of CPU tensors: move the tensors to a GPU, or set "
            "TRITON_INTERPRET=1 before Triton is imported to run the kernels in its interpreter"
        )
    if draws is None:
        draws = not interpreted and _draws(graph_module, options)
    lowered = lower_triton(
        graph_module, options, interpreted=interpreted, boxed=boxed, wide=wide, draws=draws
    )
    name = f"<fxstack {graph_module._get_name()}>"
    device = _only_device(lowered.plan)
    if not interpreted and device is not None and _natively(lowered, options):
        return lowered, load_native(lowered, options, Driver(), {device: _capability(device)})
    constants = _link_functions(lowered.program.constants, options)
    namespace = {**link_constants(constants), SOURCE: lowered.host}
    if lowered.source.functions:
        add = _interpreted_kernels if interpreted else _device_kernels
        namespace |= add(lowered, options)
    exec(compile(lowered.host, name, "exec"), namespace)  # noqa: S102 - generated just above
    return lowered, namespace["call"]


def _draws(graph_module: GraphModule, options: InductorOptions) -> bool:
    """Whether kernels draw the numbers of the graph's dropouts; compare once for each device, if the option says so."""
    devices = dropout_devices(graph_module)
    if not devices or options.dropout == "aten" or not has_philox_state():
        return False
    return options.dropout == "generated" or all(draws_like_eager(d, options, _compiled) for d in devices)


def _compiled(graph_module: GraphModule, options: InductorOptions) -> Compiled:
    """Return the graph compiled with dropout in kernels."""
    return device_callable(*load_triton(graph_module, options, draws=True), options)


def _link_functions(constants: Mapping[str, Any], options: InductorOptions) -> dict[str, Any]:
    """Return ``constants`` with compiled functions in place of the functions that operators call, each compiled once.

    A function without tensors on a GPU (the condition of a loop with a counter on the CPU) runs by ATen's operators.
    """
    inner = replace(options, cuda_graphs=False)
    compiled: dict[NestedGraph, Any] = {}
    for value in constants.values():
        if isinstance(value, NestedGraph) and value not in compiled:
            device = uses_interpreter() or on_cuda(value.module)
            compiled[value] = _function(value, inner) if device else value.module
    return {
        name: compiled[value] if isinstance(value, NestedGraph) else value
        for name, value in constants.items()
    }


def _function(graph: NestedGraph, options: InductorOptions) -> Compiled:
    """Return the compiled form of a function that an operator calls."""
    call = compile_for_device(graph.module, options)
    return (lambda *args: call(*args)[0]) if graph.is_single else call


def _natively(lowered: LoweredTriton, options: InductorOptions) -> bool:
    """Whether the host program should be C; a graph without kernels does not justify a compiler run."""
    wanted = options.host != "python" and bool(lowered.source.functions)
    return wanted and native_device_refusal() is None


def load_native(
    lowered: LoweredTriton, options: InductorOptions, driver: Driver, capabilities: dict[int, int]
) -> Compiled:
    """Return the host program in C.

    ``capabilities`` has one entry, device number -> compute capability, for all launches.

    Raises:
        CudaError: the driver cannot be used.
    """
    functions = lowered.source.functions
    ((device, capability),) = capabilities.items()
    program = native_device_program(lowered.plan, functions, device, boxed=lowered.boxed)
    launchers = Launchers(driver, options)
    constants = _link_functions(program.constants, options)
    namespace = {**link_constants(constants), SOURCE: program.source}
    namespace["raise_launch_error"] = launchers.refuse
    cubins = load_cubins(lowered.source, capability, options)
    namespace[RECORDS] = _records(program, cubins, launchers)
    exec(compile(program.source, "<fxstack>", "exec"), namespace)  # noqa: S102 - generated just above
    library = load_library(program.c, options)
    call: Compiled = bind(library, tuple(namespace[n] for n in program.state))
    return call


def _records(program: HostProgram, cubins: dict[str, Cubin], launchers: Launchers) -> bytes:
    """Return the bytes ``RECORDS`` of a native program: addresses of records, which live as long as ``launchers``."""
    addresses = [
        launchers.record(cubins[function.kernel.name], program.arguments[name], function.device)
        for name, function in program.launched.items()
    ]
    return struct.pack(f"{len(addresses)}q", *addresses)


def _interpreted_kernels(lowered: LoweredTriton, options: InductorOptions) -> dict[str, Any]:
    """Return the functions by which the host program launches kernels in Triton's interpreter, by name."""
    runtime = triton_runtime()
    folder = Path(options.cache_dir) / "triton"
    module = runtime.load_module(lowered.triton, folder if writable(folder) else Path(tempfile.mkdtemp()))
    return {
        name: runtime.interpreter_launch(function.kernel, getattr(module, function.kernel.name))
        for name, function in lowered.program.launched.items()
    }


def _device_kernels(lowered: LoweredTriton, options: InductorOptions) -> dict[str, Any]:
    """Return ``device_kernels`` for the GPUs that the host program uses, with their compute capabilities."""
    devices = {function.device for function in lowered.program.launched.values()}
    return device_kernels(lowered, options, Driver(), {d: _capability(d) for d in devices})


def device_kernels(
    lowered: LoweredTriton, options: InductorOptions, driver: Driver, capabilities: dict[int, int]
) -> dict[str, Any]:
    """Return the objects by which the host program launches kernels, by name in the program.

    ``capabilities`` maps device numbers to compute capabilities.
    """
    launchers = Launchers(driver, options)
    namespace: dict[str, Any] = {"error": launchers.error, "raise_launch_error": launchers.check}
    cubins = {c: load_cubins(lowered.source, c, options) for c in set(capabilities.values())}
    for name, function in lowered.program.launched.items():
        cubin = cubins[capabilities[function.device]][function.kernel.name]
        count = lowered.program.arguments[name]
        namespace[f"record_{name}"], namespace[name] = launchers.add(cubin, count, function.device)
    return namespace


def _graphed(lowered: LoweredTriton, call: Compiled) -> Compiled:
    """Return ``call`` recorded as a CUDA graph; if that is impossible, warn and return ``call``."""
    program = lowered.plan.program
    reason = graph_refusal(lowered.plan)
    if reason is not None:
        warn_user(f"fxstack: CUDA graphs are off for this graph: {reason}.", UserWarning)
        return call
    places = {name: k for k, name in enumerate(program.parameters)}
    mutated = frozenset(places[m.target.name] for m in program.mutations)
    stream = stream_of(_only_device(lowered.plan) or 0)
    numbers = len(program.inputs) < len(program.parameters)
    symbolic = numbers or bool(program.bindings)
    return GraphedCall(call, capture_on_device, mutated, symbolic, stream)


def _only_device(plan: Plan) -> int | None:
    """Return the number of the program's only GPU; None if there are several."""
    devices = {node.device.index or 0 for node in plan_tensors(plan) if node.device.type == "cuda"}
    return devices.pop() if len(devices) == 1 else None


def _capability(device: int) -> int:
    """Return a GPU's compute capability as in ``sm_90``."""
    major, minor = torch.cuda.get_device_capability(device)
    return int(10 * major + minor)


def device_callable(lowered: LoweredTriton, call: Compiled, options: InductorOptions) -> Compiled:
    """Return ``call`` without autograd, on its device: a launch needs the device's context to be current."""
    if records_graphs(options):
        call = _graphed(lowered, call)
    below_autograd = torch_compat.AutoDispatchBelowAutograd
    device = None if uses_interpreter() else _only_device(lowered.plan)

    def run(*args: object) -> tuple[Any, ...]:
        """Run the call on its device, below autograd."""
        with below_autograd():
            if device is None or torch_compat.cuda_getDevice() == device:
                return call(*args)
            with torch.cuda.device(device):
                return call(*args)

    vars(run)["lowered"] = lowered
    vars(run)["boxed"] = lowered.boxed
    return run


def triton_runtime() -> Any:
    """Return the module that needs Triton, imported at first use because Triton is optional."""
    try:
        from fxstack_inductor.runtime import triton_runtime as runtime  # noqa: PLC0415
    except ImportError as error:
        raise TritonMissing(f"{TRITON_HINT} (importing it gives: {error})") from error
    return runtime
