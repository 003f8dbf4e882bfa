"""The sections of ``gpu.py`` about whole models: seconds of compiling, models at the size that users train, models of a zoo."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import zoo
from gpu_measure import difference
from gpu_sections import apart, each

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpu_measure import Machine, Report

MOST = 8
"""Processes at once that compile models of the zoo."""
SHORT = 10
"""Seconds for which no further process is worth starting."""
MEASURING = 15
"""Seconds that the measurement of one model of real size takes at most, in one system."""
STOPPED = "stopped: out of time"
NEAR = 0.05
"""How far a loss, or the norm of all gradients, may be from eager's: in bfloat16, and with other random numbers in dropout."""


@dataclass(frozen=True)
class ModelCase:
    """A step of a model of the zoo; ``compiled`` is the mode of both compilers."""

    name: str
    dtype: str = "bfloat16"
    mode: str = "train"
    compiled: str = "default"

    @property
    def title(self) -> str:
        words = (self.name, self.dtype, self.mode, "" if self.compiled == "default" else self.compiled)
        return " ".join(filter(None, words))

    @property
    def arguments(self) -> tuple[str, ...]:
        return dataclasses.astuple(self)

    def build(self, machine: Machine) -> Any:
        """The model on the device, with its batch and its loss."""
        case = zoo.build(self.name, machine.pick(zoo.TINY, zoo.BENCH))
        kind = getattr(torch, self.dtype)
        batch = {
            k: v.to(machine.device, kind if v.is_floating_point() else v.dtype) for k, v in case.batch.items()
        }
        return dataclasses.replace(case, model=case.model.to(machine.device, kind), batch=batch)


def _cases(names: str, **words: str) -> list[ModelCase]:
    return [ModelCase(name, **words) for name in names.split()]


GRAPHS = "reduce-overhead"
CASES = [
    *_cases("gpt2 llama bert vit mlp t5 resnet"),
    *_cases("gpt2 llama vit resnet", compiled=GRAPHS),
    *_cases("gpt2 vit resnet", dtype="float32"),
    *_cases("gpt2 llama bert vit resnet t5", mode="infer"),
    *_cases("gpt2 llama", mode="infer", compiled=GRAPHS),
    *_cases("mlp", mode="infer", compiled="max-autotune"),
    *_cases("convnext whisper unet"),
    *_cases("llama bert mlp t5", dtype="float32"),
    *_cases("gpt2 resnet", dtype="float32", mode="infer"),
]
"""What tells most first: how far the time goes depends on how long compiling takes."""
DRY = [
    *_cases("mlp", dtype="float32"),
    *_cases("mlp", dtype="float32", mode="infer"),
    *_cases("mlp", dtype="float32", compiled=GRAPHS),
]
REAL = ("gpt2", "resnet", "vit", "llama")
"""Models of ``cuda_models.py``: GPT-2 of 124M parameters, ResNet-50, ViT-base, Llama of a billion parameters."""


def compile_models(report: Report, machine: Machine) -> None:
    """Seconds until a first step is done, with cold caches, several models at once: the section of models finds them compiled."""
    at_once = machine.pick(1, max(1, min(MOST, (os.cpu_count() or 1) // 2)))
    cases = [c for c in machine.pick(DRY, CASES) if c.compiled != GRAPHS and not report.has(c.title)]

    def one(case: ModelCase) -> dict[str, Any]:
        if report.left < machine.pick(0, 40):
            return {"case": case.title, "skipped": f"{report.left:.0f} s left"}
        command = machine.command("--case", *case.arguments)
        ended, path = ended_in_time(command, report.left - SHORT), _first_steps(machine, case)
        row = json.loads(path.read_text()) if path.exists() else {"case": case.title}
        return row | ({"skipped" if ended == STOPPED else "failed": ended} if ended else {})

    with ThreadPoolExecutor(at_once) as pool:
        for row in pool.map(one, cases):
            report.add(**row)
    report.add(case="models at once", processes=at_once)


def compile_model(machine: Machine, case: ModelCase) -> None:
    """One model in a process of its own, all systems one after the other."""
    row: dict[str, Any] = {"case": case.title}
    for system, compiler in machine.compilers((case.compiled,)).items():

        def measure(system: str = system, compiler: Any = compiler) -> dict[str, Any]:
            built = case.build(machine)
            start = time.perf_counter()
            _step(built, compiler(built.model), case.mode)
            machine.synchronize()
            return {f"{system} first_s": time.perf_counter() - start}

        row |= apart(system, measure)
        _first_steps(machine, case).write_text(json.dumps(row))


def _first_steps(machine: Machine, case: ModelCase) -> Path:
    """Where the process of a case writes its row."""
    return machine.folder / f"compile-{'-'.join(case.arguments)}.json"


def ended_in_time(command: list[str], seconds: float) -> str:
    """How the process ended, unless it ended well."""
    try:
        code = subprocess.run(command, check=False, timeout=seconds).returncode
    except subprocess.TimeoutExpired:
        return STOPPED
    return f"status {code}" if code else ""


def real(report: Report, machine: Machine) -> None:
    """Models at real size, training in bfloat16: all compile at once, and then each is measured alone."""
    names = [n for n in machine.pick(("mlp",), REAL) if not report.has(n)]
    workers = {name: [Worker(machine, name, system) for system in machine.compilers()] for name in names}
    for name in names:
        for worker in workers[name]:
            worker.wait(worker.ready, report.left - machine.pick(0, MEASURING))
        found: dict[str, Any] = {}
        for worker in workers[name]:
            found |= worker.measured(min(report.left, machine.pick(600, MEASURING)))
        report.add(case=name, **_agreement(found))


class Worker:
    """A process that compiles a model of real size in one system, waits for its turn, and measures it."""

    def __init__(self, machine: Machine, name: str, system: str) -> None:
        self.system = system
        self.ready, self.turn, self.result = (
            _file(machine, name, system, end) for end in ("ready", "turn", "json")
        )
        for path in (self.ready, self.turn, self.result):
            path.unlink(missing_ok=True)
        self._process = subprocess.Popen(machine.command("--real", name, system))

    def wait(self, path: Path, seconds: float) -> bool:
        """Whether the process has written ``path``, in time and before its end."""
        end = time.monotonic() + seconds
        while not path.exists() and self._process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        return path.exists()

    def measured(self, seconds: float) -> dict[str, Any]:
        """What the process finds out now that it is its turn."""
        if self.ready.exists():
            self.turn.touch()
            self.wait(self.result, seconds)
        code = self._process.poll() if not self.result.exists() else None
        self._process.kill()
        self._process.wait()
        if self.result.exists():
            return dict(json.loads(self.result.read_text()))
        return {"skipped": STOPPED} if code is None else {f"{self.system} failed": f"status {code}"}


def _file(machine: Machine, name: str, system: str, end: str) -> Path:
    """A file by which a ``Worker`` and its process know of each other."""
    return machine.folder / f"real-{name}-{system.replace(' ', '-')}.{end}"


def real_worker(machine: Machine, name: str, system: str) -> None:
    """What the process of a ``Worker`` does."""
    torch.manual_seed(0)
    case = machine.pick(ModelCase(name, "float32").build, _real_model)(machine if machine.dry else name)
    start = time.perf_counter()
    model = machine.compilers()[system](case.model)
    loss, gradients = _step(case, model, "train")
    norm = torch.stack([g.float().norm() for g in gradients if g is not None]).norm()
    figures = {"first_s": time.perf_counter() - start, "loss": loss.float().item(), "gradients": norm.item()}
    del loss, gradients, norm
    machine.demand_device()
    _file(machine, name, system, "ready").touch()
    while not _file(machine, name, system, "turn").exists():
        time.sleep(0.02)
    figures |= _figures(machine, partial(_step, case, model, "train"))
    made = _file(machine, name, system, "new")
    made.write_text(json.dumps({f"{system} {key}": value for key, value in figures.items()}))
    made.rename(_file(machine, name, system, "json"))


def _real_model(name: str) -> Any:
    import cuda_models

    return cuda_models.build(f"real/{name}", torch.bfloat16, "train")


def _agreement(found: dict[str, Any]) -> dict[str, Any]:
    """The figures, and for each system what is not near eager's."""
    wrong = {}
    for key in ("loss", "gradients"):
        expected = found.get(f"eager {key}")
        for name, value in found.items():
            if expected is None or not name.endswith(f" {key}"):
                continue
            if not abs(value - expected) <= NEAR * abs(expected):
                wrong[name.removesuffix(key) + "wrong"] = f"{key} {value:.4g}, not {expected:.4g}"
    return found | wrong


def models(report: Report, machine: Machine) -> None:
    """Whole models of the zoo, inference and training, float32 and bfloat16, with warm caches."""
    for case in machine.pick(DRY, CASES):

        def row(case: ModelCase = case) -> dict[str, Any]:
            def measure(system: str, compiler: Callable[..., Any]) -> dict[str, Any]:
                print(f"{case.title}: {system}", flush=True)
                return _one_model(machine, case, compiler, system)

            return compared(each(report, case.title, machine.compilers((case.compiled,)), measure))

        report.attempt(case.title, row, machine.pick(0, 8))


def _one_model(
    machine: Machine, case: ModelCase, compiler: Callable[..., Any], system: str
) -> dict[str, Any]:
    built = case.build(machine)
    start = time.perf_counter()
    step = partial(_step, built, compiler(built.model), case.mode)
    torch.manual_seed(0)
    copied = partial(torch.utils._pytree.tree_map_only, torch.Tensor, torch.clone)
    result = copied(step())  # what was recorded as a CUDA graph writes to the same memory again
    machine.synchronize()
    figures = {"warm_s": time.perf_counter() - start} | _figures(machine, step)
    return {f"{system} result": result} | {f"{system} {key}": value for key, value in figures.items()}


def _figures(machine: Machine, step: Callable[[], Any]) -> dict[str, float]:
    """Of a step that is compiled: MiB at its peak, its milliseconds, and those of its kernels alone."""
    return {
        "peak_mib": machine.peak_mib(step),
        "ms": machine.median_ms(step, flush=False),
        "kernels_ms": machine.kernels_ms(step),
    }


def _step(case: Any, model: Callable[..., Any], mode: str) -> Any:
    """One step of a model: its results, or its loss and gradients."""
    case.model.train(mode == "train")
    if mode == "infer":
        with torch.no_grad():
            return model(**case.batch)
    case.model.zero_grad(set_to_none=True)
    loss = case.loss(model, case.batch)
    loss.backward()
    return loss.detach(), [p.grad for p in case.model.parameters()]


def compared(found: dict[str, Any]) -> dict[str, Any]:
    """The figures, with each system's results replaced by their difference from eager's if there is one."""
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
