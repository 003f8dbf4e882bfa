"""Everything that only a GPU can show, in one call of under eight minutes.

    python gpu.py FOLDER [--dry] [--sections kernels models ...] [--minutes 7.5]

Each section runs in a process of its own and writes its rows to FOLDER/<section>.json; a short table comes last. A failure is
a row, never the end: where a process dies, hangs, or loses its device, another one goes on behind the case that it was at.
``--dry`` needs no GPU: tiny sizes on CPU, kernels in Triton's interpreter, every line of this file run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_measure import Machine, Report

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / "packages" / name / "src" for name in ("capture", "functionalize", "partition", "inductor")]

SHARES = {
    "environment": 0.05,
    "kernels": 0.17,
    "products": 0.13,
    "launch": 0.07,
    "dropout": 0.05,
    "opdb": 0.1,
    "compile": 0.24,
    "models": 0.19,
}
"""Sections in order, and the share of the time that each may take; what one leaves, the others have."""
LATE = 5
"""Seconds that a section may take longer than it was told: the whole never takes longer than it was given."""
RESTARTS = 8
"""Further processes of one section."""
SHORT = 10
"""Seconds for which no further process is worth starting."""
MOST = 8
"""Processes at once that compile models."""
STOPPED = "stopped: out of time"

MODEL_NAMES = ("gpt2", "llama", "bert", "vit", "mlp", "t5", "resnet", "convnext", "whisper", "unet")
KINDS = ("train", "infer")
CASES = tuple(product(("bfloat16", "float32"), KINDS, MODEL_NAMES))
"""What matters most first: how far the time goes depends on how long compiling takes."""
MODES = ("default", "reduce-overhead")
TUNED = ("default", "max-autotune-no-cudagraphs")


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
    from gpu_measure import difference

    wrong = difference(run(*case.inputs), expected, case.tolerance)
    ms = machine.median_ms(lambda: run(*case.inputs))
    found: dict[str, Any] = {f"{name} ms": ms}
    if case.traffic:
        found[f"{name} gbps"] = case.traffic / ms / 1e6
    if case.operations:
        found[f"{name} tflops"] = case.operations / ms / 1e9
    return found | ({f"{name} wrong": wrong} if wrong else {})


def products(report: Report, machine: Machine) -> None:
    """Matrix products and attention against cuBLAS and torch's flash attention (eager's), tile sizes predicted and measured."""
    from gpu_cases import arithmetic_bound

    for case in arithmetic_bound(machine):

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


def dropout(report: Report, machine: Machine) -> None:
    """Dropout in generated kernels: eager's numbers, and the generator as eager leaves it."""
    from gpu_dropout import rows

    ours = {name: c for name, c in machine.compilers(MODES).items() if name.startswith("fxstack")}
    for case, row in rows(ours, machine.device, small=machine.dry):
        report.attempt(case, row, machine.pick(0, 4))


def opdb(report: Report, machine: Machine) -> None:
    """Operators of torch's database against eager on the same device; which ones depends on the time."""
    from gpu_opdb import sweep

    for row in sweep(machine, report.left):
        report.add(**row)


def compile_models(report: Report, machine: Machine) -> None:
    """Seconds until a first step is done, with cold caches, several models at once: the next section finds them compiled."""
    at_once = machine.pick(1, max(1, min(MOST, (os.cpu_count() or 1) // 2)))

    def one(case: tuple[str, str, str]) -> dict[str, Any]:
        if report.left < machine.pick(0, 40):
            return {"case": _title(case), "skipped": f"{report.left:.0f} s left"}
        command = [*_command(machine.folder, machine.dry), "--case", *case]
        ended, path = _ended_in_time(command, report.left - SHORT), _first_steps(machine, case)
        row = json.loads(path.read_text()) if path.exists() else {"case": _title(case)}
        return row | ({"failed": ended} if ended else {})

    with ThreadPoolExecutor(at_once) as pool:
        for row in pool.map(one, _model_cases(machine)):
            report.add(**row)
    report.add(case="models at once", processes=at_once)


def compile_model(machine: Machine, dtype: str, mode: str, name: str) -> None:
    """One model in a process of its own, both systems one after the other."""
    import zoo

    case = (dtype, mode, name)
    row: dict[str, Any] = {"case": _title(case)}
    path = _first_steps(machine, case)
    size = machine.pick(zoo.TINY, zoo.BENCH)
    for system, compiler in machine.compilers().items():

        def measure(system: str = system, compiler: Any = compiler) -> dict[str, Any]:
            built = _on_device(zoo.build(name, size), machine, dtype)
            start = time.perf_counter()
            _step(built, compiler(built.model), mode)
            machine.synchronize()
            return {f"{system} first_s": time.perf_counter() - start}

        row |= apart(system, measure)
        path.write_text(json.dumps(row))


def _title(case: tuple[str, str, str]) -> str:
    dtype, mode, name = case
    return f"{name} {dtype} {mode}"


def _first_steps(machine: Machine, case: tuple[str, str, str]) -> Path:
    """Where the process of a case writes its row."""
    return machine.folder / f"compile-{'-'.join(case)}.json"


def _ended_in_time(command: list[str], seconds: float) -> str:
    """How the process ended, unless it ended well."""
    try:
        code = subprocess.run(command, check=False, timeout=seconds).returncode
    except subprocess.TimeoutExpired:
        return STOPPED
    return f"status {code}" if code else ""


def _model_cases(machine: Machine) -> list[tuple[str, str, str]]:
    return list(machine.pick(product(("float32",), KINDS, ("mlp",)), CASES))


def models(report: Report, machine: Machine) -> None:
    """Whole models, inference and training, float32 and bfloat16, with warm caches."""
    import zoo

    size = machine.pick(zoo.TINY, zoo.BENCH)
    for compiled, (dtype, mode, name) in product(machine.pick(MODES[:1], MODES), _model_cases(machine)):
        case = _title((dtype, mode, name)) + ("" if compiled == MODES[0] else f" {compiled}")

        def row(
            name: str = name, dtype: str = dtype, mode: str = mode, case: str = case, compiled: str = compiled
        ) -> dict[str, Any]:
            def measure(system: str, compiler: Callable[..., Any]) -> dict[str, Any]:
                print(f"{case}: {system}", flush=True)
                built = _on_device(zoo.build(name, size), machine, dtype)
                return _one_model(machine, built, compiler, mode, system)

            return _compared(each(report, case, machine.compilers((compiled,)), measure))

        report.attempt(case, row, machine.pick(0, 8))


def _on_device(case: Any, machine: Machine, dtype: str) -> Any:
    import dataclasses

    import torch

    kind = getattr(torch, dtype)
    batch = {
        k: v.to(machine.device, kind if v.is_floating_point() else v.dtype) for k, v in case.batch.items()
    }
    return dataclasses.replace(case, model=case.model.to(machine.device, kind), batch=batch)


def _one_model(
    machine: Machine, case: Any, compiler: Callable[..., Any], mode: str, system: str
) -> dict[str, Any]:
    import torch

    start = time.perf_counter()
    model = compiler(case.model)

    def step() -> Any:
        return _step(case, model, mode)

    torch.manual_seed(0)
    copied = partial(torch.utils._pytree.tree_map_only, torch.Tensor, torch.clone)
    result = copied(step())  # what was recorded as a CUDA graph writes to the same memory again
    machine.synchronize()
    first = time.perf_counter() - start
    peak = machine.peak_mib(step)
    return {
        f"{system} result": result,
        f"{system} warm_s": first,
        f"{system} ms": machine.median_ms(step, flush=False),
        f"{system} kernels_ms": machine.kernels_ms(step),
        f"{system} peak_mib": peak,
    }


def _step(case: Any, model: Callable[..., Any], mode: str) -> Any:
    """One step of a model: its results, or its loss and gradients."""
    import torch

    case.model.train(mode == "train")
    if mode == "infer":
        with torch.no_grad():
            return model(**case.batch)
    case.model.zero_grad(set_to_none=True)
    loss = case.loss(model, case.batch)
    loss.backward()
    return loss.detach(), [p.grad for p in case.model.parameters()]


def _compared(found: dict[str, Any]) -> dict[str, Any]:
    """The figures, with each system's results replaced by their difference from eager's if there is one."""
    from gpu_measure import difference

    results = {k: v for k, v in found.items() if k.endswith(" result")}
    row = {k: v for k, v in found.items() if not k.endswith(" result")}
    if "eager result" not in results:
        return row
    expected = results.pop("eager result")
    for name, result in results.items():
        wrong = difference(result, expected, 5e-2)
        if wrong:
            row[name.replace(" result", " wrong")] = wrong
    return row


SECTIONS: dict[str, Callable[[Report, Machine], None]] = {
    "environment": environment,
    "kernels": kernels,
    "products": products,
    "launch": launch,
    "dropout": dropout,
    "opdb": opdb,
    "compile": compile_models,
    "models": models,
}


def run_section(name: str, folder: Path, seconds: float, *, dry: bool) -> None:
    from gpu_measure import Machine, Report

    machine = Machine(dry, folder, seconds)
    SECTIONS[name](Report.start(name, machine), machine)


def _environment() -> dict[str, str]:
    """The variables of a section's process: it imports the packages from this checkout, installed or not."""
    paths = [*map(str, SOURCES), str(ROOT / "integration" / "src"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "TRANSFORMERS_VERBOSITY": "error",
        "PYTHONPATH": os.pathsep.join(p for p in paths if p),
    }


def build_capture() -> str:
    """Build capture's extension module where it is not built yet, or not of these sources; what went wrong, or nothing."""
    check = [sys.executable, "-c", "import fxstack_capture._native"]
    if _ended(check, ROOT) is None:
        return ""
    package = ROOT / "packages" / "capture"
    return compile_extension(package, package / "src") or _ended(check, ROOT) or ""


def compile_extension(package: Path, target: Path) -> str:
    """Compile the extension of ``package`` into the packages under ``target``; what went wrong, or nothing.

    It is done where pyproject.toml is not: of setuptools before 77 none reads that, and none is needed to compile.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name in ("setup.py", "src"):
            (Path(folder) / name).symlink_to(package / name)
        command = ["setup.py", "-q", "build_ext", "--force", "--build-lib", str(target)]
        return _ended([sys.executable, *command], Path(folder)) or ""


def _ended(command: list[str], folder: Path) -> str | None:
    """The end of what a command that failed wrote to stderr."""
    done = subprocess.run(
        command, cwd=folder, env=_environment(), capture_output=True, text=True, check=False
    )
    return None if done.returncode == 0 else done.stderr[-2000:] or f"status {done.returncode}"


def start_section(name: str, folder: Path, seconds: float, *, dry: bool) -> None:
    """Run a section in a process, and in further ones where that dies; all is stopped when it outstays its time."""
    for pattern in (f"{name}.*", f"{name}-*.json*"):
        for old in folder.glob(pattern):
            old.unlink()
    end, died = time.monotonic() + seconds, []
    while len(died) <= RESTARTS and (not died or end - time.monotonic() > SHORT):
        status = _section_process(name, folder, end - time.monotonic(), dry=dry)
        if not status:
            break
        died.append(status)
        if status == STOPPED:
            break
    if died:
        (folder / f"{name}.failed").write_text(", ".join(died))


def _command(folder: Path, dry: bool) -> list[str]:
    return [sys.executable, __file__, str(folder), *(["--dry"] if dry else [])]


def _section_process(name: str, folder: Path, seconds: float, *, dry: bool) -> str:
    """How the process ended, unless it ended well."""
    command = [*_command(folder, dry), "--only", name, "--seconds", str(seconds)]
    environment = _environment()
    environment["FXSTACK_INDUCTOR_CACHE_DIR"] = str(folder / "cache")
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "cache-torch")
    if dry:
        environment["TRITON_INTERPRET"] = "1"
    with (folder / f"{name}.log").open("a") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            code = process.wait(seconds + LATE)
        except subprocess.TimeoutExpired:
            code = None
        with suppress(ProcessLookupError):  # nothing that it has started is left
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if code is None:
        return STOPPED
    return f"status {code}" if code else ""


# --- the table at the end --------------------------------------------------------------------------


def table(folder: Path) -> str:
    """The short table: one line a case, and one line a failure."""
    lines: list[str] = []
    for name in SECTIONS:
        path, failed = folder / f"{name}.json", folder / f"{name}.failed"
        rows = json.loads(path.read_text())["rows"] if path.exists() else []
        lines += [f"{name}: {_line(row)}" for row in rows]
        if name == "models":
            lines += _means(rows)
        if failed.exists():
            lines.append(f"{name}: {failed.read_text()}, see {name}.log")
    return "\n".join(lines)


def _line(row: dict[str, Any]) -> str:
    rest = {k: v for k, v in row.items() if k != "case"}
    shown = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {str(v)[:160]}" for k, v in rest.items())
    return f"{row['case']}: {', '.join(shown)}"


def _means(rows: list[dict[str, Any]]) -> list[str]:
    """Geometric means of torch.compile's time over ours, per mode."""
    lines = []
    for mode in MODES:
        pairs = [(r.get(f"torch.compile {mode} ms"), r.get(f"fxstack {mode} ms")) for r in rows]
        ratios = [a / b for a, b in pairs if a and b]
        if ratios:
            mean = statistics.geometric_mean(ratios)
            lines.append(f"models: {mode}: {mean:.3f}x torch.compile over {len(ratios)} cases")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--sections", nargs="*", default=list(SECTIONS))
    parser.add_argument("--minutes", type=float, default=7.5)
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=60.0, help=argparse.SUPPRESS)
    parser.add_argument("--case", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        from gpu_measure import Machine

        compile_model(Machine(arguments.dry, arguments.folder, arguments.seconds), *arguments.case)
        return
    if arguments.only:
        run_section(arguments.only, arguments.folder, arguments.seconds, dry=arguments.dry)
        return
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if problem := build_capture():
        print(f"capture's extension cannot be built:\n{problem}")
    end = time.monotonic() + 60 * arguments.minutes
    for position, name in enumerate(arguments.sections):
        rest = sum(SHARES[n] for n in arguments.sections[position:])
        seconds = (end - time.monotonic()) * SHARES[name] / rest - LATE
        start_section(name, arguments.folder, seconds, dry=arguments.dry)
    print(table(arguments.folder))


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = [tempfile.mkdtemp(), "--dry", "--sections", "environment", "launch"]
    main()
