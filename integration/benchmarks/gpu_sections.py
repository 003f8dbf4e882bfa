"""The sections of ``gpu.py`` about functions: kernels, attention, matrix products, launches, the operator database."""

from __future__ import annotations

import platform
from functools import partial
from typing import TYPE_CHECKING, Any

from gpu_measure import difference

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_measure import Machine, Report

TUNED = ("default", "max-autotune-no-cudagraphs")
MODES = ("default", "reduce-overhead")


def environment(report: Report, machine: Machine) -> None:
    """Versions and the device."""
    import torch

    from fxstack_inductor.runtime.cubins import triton_version

    report.add(
        case="versions",
        python=platform.python_version(),
        torch=torch.__version__,
        triton=triton_version(),
        device="cpu (dry)" if machine.dry else torch.cuda.get_device_name(),
        capability="" if machine.dry else torch.cuda.get_device_capability(),
    )


def kernels(report: Report, machine: Machine) -> None:
    """Memory-bound functions: right, and how near to the speed of a device copy."""
    import torch
    from gpu_cases import memory_bound

    source = torch.empty(machine.pick(16, 1 << 29), dtype=torch.int8, device=machine.device)
    target = torch.empty_like(source)
    copy = 2 * source.numel() / machine.median_ms(lambda: target.copy_(source)) / 1e6
    report.add(case="device copy", gbps=copy)
    for case in memory_bound(machine):

        def row(case: Any = case) -> dict[str, Any]:
            expected = case.run(*case.inputs)
            found = each(
                report,
                case.name,
                machine.compilers(),
                lambda name, compiler: _one_case(machine, case, compiler(case.run), expected, name),
            )
            return found | ratio("of_copy", found.get("fxstack default gbps"), copy)

        report.attempt(case.name, row, machine.pick(0, 6))


def each(
    report: Report,
    case: str,
    systems: dict[str, Callable[..., Any]],
    measure: Callable[[str, Any], dict[str, Any]],
) -> dict[str, Any]:
    """What ``measure(name, compiler)`` gives for each system. What is known stays where the process ends in a later one."""
    found: dict[str, Any] = {}
    for name, compiler in systems.items():
        figures = {k: v for k, v in found.items() if not k.endswith(" result")}
        report.add(case=case, **figures, failed=f"the process ended in {name}")
        found |= apart(name, partial(measure, name, compiler))
    return found


def apart(name: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """One system's figures; that it fails is one too, and costs the others nothing."""
    try:
        return measure()
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return {f"{name} failed": text[:400]}


def ratio(name: str, above: float | None, below: float | None) -> dict[str, float]:
    """``above / below`` under ``name``, where both were measured."""
    return {name: above / below} if above and below else {}


def _one_case(
    machine: Machine, case: Any, run: Callable[..., Any], expected: Any, name: str
) -> dict[str, Any]:
    wrong = difference(run(*case.inputs), expected, case.tolerance)
    ms = machine.median_ms(lambda: run(*case.inputs))
    found: dict[str, Any] = {f"{name} ms": ms}
    if case.traffic:
        found[f"{name} gbps"] = case.traffic / ms / 1e6
    if case.operations:
        found[f"{name} tflops"] = case.operations / ms / 1e9
    return found | ({f"{name} wrong": wrong} if wrong else {})


def attention(report: Report, machine: Machine) -> None:
    """Attention and flex attention, with gradients and without, against torch's flash attention (eager's)."""
    from gpu_cases import attention as cases

    _arithmetic(report, machine, cases(machine))


def products(report: Report, machine: Machine) -> None:
    """Matrix products against cuBLAS (eager's), tile sizes predicted and measured."""
    from gpu_cases import products as cases

    _arithmetic(report, machine, cases(machine))


def _arithmetic(report: Report, machine: Machine, cases: list[Any]) -> None:
    for case in cases:

        def row(case: Any = case) -> dict[str, Any]:
            expected = case.around(case.in_eager)(*case.inputs)
            systems = machine.compilers(machine.pick(TUNED[:1], TUNED))
            systems.pop(f"torch.compile {TUNED[1]}", None)  # it would take minutes

            def measure(name: str, compiler: Callable[..., Any]) -> dict[str, Any]:
                run = compiler(case.in_eager if name == "eager" else case.run)
                return _one_case(machine, case, case.around(run), expected, name)

            found = each(report, case.name, systems, measure)
            return found | ratio("of_eager", found.get("eager ms"), found.get("fxstack default ms"))

        report.attempt(case.name, row, machine.pick(0, 8))


def launch(report: Report, machine: Machine) -> None:
    """Host time of a call and of one more kernel in it, tiny tensors."""
    import torch

    def chain(count: int) -> Callable[..., Any]:
        def run(*tensors: Any) -> Any:
            return tuple(t.sum(-1) for t in tensors[:count])

        return run

    tensors = tuple(torch.randn(k + 2, 7, device=machine.device) for k in range(16))
    for name, compiler in machine.compilers().items():

        def row(compiler: Any = compiler) -> dict[str, Any]:
            micros = {}
            for count in (1, 16):
                run = compiler(chain(count))
                run(*tensors)
                micros[count] = machine.host_us(lambda r=run: r(*tensors))
            return {"call_us": micros[1], "launch_us": (micros[16] - micros[1]) / 15}

        report.attempt(name, row, machine.pick(0, 10))


def opdb(report: Report, machine: Machine) -> None:
    """Operators of torch's database against eager on the same device; which ones depends on the time."""
    from gpu_opdb import sweep

    for row in sweep(machine, report.left):
        report.add(**row)


def dropout(report: Report, machine: Machine) -> None:
    """Dropout in generated kernels: eager's numbers, and the generator as eager leaves it."""
    from gpu_dropout import rows

    import fxstack

    # In a dry call the kernels are C: the interpreter of Triton's kernels leaves dropout to ATen's CPU kernel.
    ours = {f"fxstack {mode}": partial(fxstack.compile, mode=mode) for mode in MODES}
    for case, row in rows(ours, machine.device, small=machine.dry):
        report.attempt(case, row, machine.pick(0, 4))
