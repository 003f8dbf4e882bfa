"""Runs a program in eager torch and compiled, with several numbers of threads, and says how the runs differ."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import logging
import re
import sys
import types
import warnings
from typing import TYPE_CHECKING, Any

import torch

import fxstack
import fxstack.pipeline

from .expressions import SUMS
from .noise import TRIALS, Noise, farther, unexplained
from .observing import TOLERANCE, Comparison, Difference, Observed, Run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .writer import Program

NAME = "random_program"
OURS = (
    "defect",
    "please report",
    "internal error",
    "runs in eager torch",
    "failed with",
    "it runs in plain python",
    "running in plain python",
    "gcc",
)
"""Parts of warnings that count as differences."""
LIMITS = (
    (r"\.set_\(", r"^\d+ sharing"),
    (r"\.data = ", r"^\d+ sharing\.\d+\.2: (None|'outside') instead of"),
    (r"autograd\.grad\(", r"^\d+ sharing\.\d+\.2: None instead of"),
    (r"as_strided\(", r"setStorage: sizes .* instead of"),
    (r"(select|slice|diagonal|as_strided)_scatter\(", r"(strides|offset) .* instead of"),
    (r"autograd\.grad\(", r"appears to not have been used in the graph.* instead of"),
    (r"allow_unused=True", r"raised.*backward through the graph a second time.* instead of"),
    (r"", r"gradients.* instead of .*Trying to backward through the graph a second time"),
    (r"grad\(|_hook\(", r"a result of a compiled graph that another .* instead of"),
)
"""Documented limits: what a program that reaches one has in its text, and what its differences are then."""
CHANGED = (
    (r"", r"backward raised.*modified by an inplace operation"),
    (r"\.data( = |\.\w+_\()", r"^\d+ (gradients|backward raised)"),
)
"""The same where another graph has changed what a backward reads: eager and compiled graphs save other tensors."""
EXPECTED = ("was compiled", "captured graph runs in eager torch")
"""Parts of warnings about documented limits, which do not."""


@dataclasses.dataclass
class Outcome:
    """``differences`` by threads; ``undecided``: runs that only rounding tells apart; ``sums``: threads that sum otherwise,
    or have other vectors; ``limits``: runs that differ as is documented (``LIMITS``)."""

    differences: list[str] = dataclasses.field(default_factory=list)
    undecided: int = 0
    sums: int = 0
    limits: int = 0
    graphs: int = 0
    breaks: int = 0
    eager_graphs: int = 0


class Restored:
    """A module as it was, to be run again by the code that was compiled for it."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.parts = [(m, dict(vars(m)), self.copies(m)) for m in module.modules()]
        tensors = [*module.parameters(), *module.buffers()]
        self.tensors = [(t, t.data, t.detach().clone(), t.requires_grad) for t in tensors]

    @staticmethod
    def copies(m: torch.nn.Module) -> dict[str, Any]:
        return {k: copy.copy(v) for k, v in vars(m).items() if isinstance(v, (dict, list))}

    def put_back(self) -> None:
        for t, data, values, requires_grad in self.tensors:
            t.data = data
            t.data.copy_(values)
            t.grad = None
            if not t.is_leaf:  # changed in place by something with a history
                t.detach_()
            t.requires_grad_(requires_grad)
            if t._backward_hooks:
                t._backward_hooks.clear()
        for module, names, copies in self.parts:
            for name in [n for n in vars(module) if n not in names]:
                del vars(module)[name]
            vars(module).update(names)
            for name, content in copies.items():
                fill(names[name], content)


def fill(container: Any, content: Any) -> None:
    if container == content if not any_tensors(content) else container is content:
        return
    container.clear()
    (container.update if isinstance(container, dict) else container.extend)(content)


def any_tensors(content: Any) -> bool:
    items = content.values() if isinstance(content, dict) else content
    return any(isinstance(v, torch.Tensor) for v in items)


@contextlib.contextmanager
def defects() -> Iterator[list[str]]:
    """What rules of the code generator failed while graphs were compiled: operators are called through ATen then, silently."""
    found: list[str] = []
    plain = fxstack.pipeline.compile_graph

    def watched(*args: Any, **kwargs: Any) -> Any:
        made = plain(*args, **kwargs)
        lowered = getattr(made, "lowered", None)
        if lowered is not None:
            with contextlib.suppress(AttributeError):
                found.extend(str(f) for f in lowered.plan.program.fallbacks if f.defect)
        return made

    fxstack.pipeline.compile_graph = watched
    try:
        yield found
    finally:
        fxstack.pipeline.compile_graph = plain


def coarsest(source: str) -> float:
    """The tolerance of the least precise dtype that the source names."""
    named = [limit for dtype, limit in TOLERANCE.items() if str(dtype).removeprefix("torch.") in source]
    return max(named, default=TOLERANCE[torch.float32])


def program_of(source: str) -> str:
    """The part of ``source`` that is compiled."""
    return source[source.rindex("\ndef f(" if "\ndef f(" in source else "class Model") :]


def wide(program: str) -> str:
    """``program`` in double precision."""
    program = re.sub(r"torch\.(float32|float16|bfloat16)\b", "torch.float64", program)
    program = program.replace("torch.complex64", "torch.complex128")
    return re.sub(r"\.(float|half|bfloat16)\(\)", ".double()", program)


def widened(t: torch.Tensor) -> torch.Tensor:
    if not t.is_floating_point() and not t.is_complex():
        return t
    wider = t.detach().to(torch.complex128 if t.is_complex() else torch.float64)
    return wider.requires_grad_(t.requires_grad)


def reassociates(body: str) -> bool:
    return ", True)" in body or "self." in body or any(word in body for word in SUMS)


def ulps(difference: Difference) -> float:
    """How many units in the last place of the largest element two tensors are apart."""
    got, want = difference.got, difference.want
    assert got is not None
    assert want is not None
    apart = (got.double() - want.double()).abs()
    unit = want.double().abs().max() * torch.finfo(want.dtype).eps
    return float((apart.nan_to_num(0).max() / unit).nan_to_num(0))


class Check:
    """All runs of one program."""

    def __init__(self, source: str, calls: int, plan: int, options: dict[str, Any]) -> None:
        self.calls, self.plan, self.options = calls, plan, options
        self.source, self.program = source, program_of(source)
        self.limit = max(coarsest(source[source.index("def tensor") :]), 0)
        # Dataclasses look for their module.
        self.space: dict[str, Any] = sys.modules.setdefault(NAME, types.ModuleType(NAME)).__dict__
        exec(compile(source, "<random program>", "exec"), self.space)

    def run(self, made: Any, module: Any) -> Observed:
        return Run(self.space, self.calls, self.plan)(made, module)

    def eager(self) -> Observed:
        made = self.space["make"]()
        return self.run(made, made if isinstance(made, torch.nn.Module) else None)

    def noisy(self) -> list[Observed]:
        runs = []
        for trial in range(TRIALS):
            made = self.space["make"]()
            module = made if isinstance(made, torch.nn.Module) else None

            def perturbed(*args: Any, made: Any = made, trial: int = trial) -> Any:
                with Noise(trial, 2.0 + 2 * (trial % 3)):
                    return made(*args)

            with NoisyBackward(trial):
                runs.append(self.run(perturbed, module))
        return runs

    def rounded(self) -> Observed:
        """A run with kernels that round every intermediate value as eager's operators do, in half precision above all."""
        made = self.space["make"]()
        options = {**self.options["options"], "eager_rounding": True}
        compiled = fxstack.compile(made, dynamic=self.options.get("dynamic"), options=options)
        return self.run(compiled, made if isinstance(made, torch.nn.Module) else None)

    def exact(self) -> Observed:
        """A run in double precision, of the same numbers: made in the program's dtypes, and computed with in wider ones."""
        space = types.ModuleType(NAME).__dict__
        exec(compile(self.source, "<random program>", "exec"), space)
        plain = space["tensor"]
        space["tensor"] = lambda *args, **kwargs: widened(plain(*args, **kwargs))
        made = space["make"]()
        exec(compile(wide(self.program), "<random program>", "exec"), space)
        if not isinstance(made, torch.nn.Module):
            return Run(space, self.calls, self.plan)(space["f"], None)
        made.double().__class__ = space["Model"]
        return Run(space, self.calls, self.plan)(made, made)

    def __call__(self, threads: tuple[int, ...]) -> Outcome:
        outcome, before = Outcome(), torch.get_num_threads()
        made = self.space["make"]()
        module = made if isinstance(made, torch.nn.Module) else None
        kept = Restored(made) if module is not None else None
        compiled = fxstack.compile(made, dynamic=self.options.get("dynamic"), options=self.options["options"])
        log, runs = fxstack.compile_log(compiled), []
        try:
            with defects() as found:
                for number in threads:
                    torch.set_num_threads(number)
                    wanted = self.eager()
                    if kept is not None:
                        kept.put_back()
                    runs.append(self.run(compiled, module))
                    self.judge(outcome, log, number, runs[-1], wanted)
            outcome.differences += [f"rule failed: {text}" for text in found]
            for other in runs[1:]:
                self.bits(outcome, other, runs[0])
        finally:
            torch.set_num_threads(before)
        outcome.graphs, outcome.breaks = log.graph_count, log.break_count
        return outcome

    def judge(
        self, outcome: Outcome, log: fxstack.CompileLog, threads: int, got: Observed, wanted: Observed
    ) -> None:
        found = Comparison(self.limit)(got, wanted)
        left = [d for d in found if not self.is_documented(d, log)]
        outcome.limits += len(left) < len(found)
        if left:
            left = unexplained(left, wanted, self.noisy(), self.limit)
            if left and not Comparison(self.limit)(self.rounded(), wanted):
                left = []
            if any(d.got is not None for d in left):
                left = farther(left, self.exact())
            outcome.undecided += not left
            outcome.differences += [f"{threads} threads: {d.path}: {d.text}" for d in left]
        for text in got.warned:
            outcome.eager_graphs += "runs in eager torch" in text
            if suspicious(text):
                outcome.differences.append(f"{threads} threads: warned {text[:1500]}")

    def is_documented(self, difference: Difference, log: fxstack.CompileLog) -> bool:
        text = f"{difference.path}: {difference.text}"
        known = LIMITS + CHANGED if log.break_count else LIMITS
        return any(
            re.search(pattern, text, re.DOTALL) and re.search(program, self.program)
            for program, pattern in known
        )

    def bits(self, outcome: Outcome, got: Observed, first: Observed) -> None:
        """With more threads the same numbers, bit for bit, unless there are sums."""
        found: list[Difference] = Comparison(0.0, exactly=True)(got, first)
        if not found:
            return
        if reassociates(self.program) or all(d.got is not None and ulps(d) <= 4 for d in found):
            outcome.sums += 1
        elif not outcome.differences:
            outcome.differences.append(f"bits by threads: {found[0].path}: {found[0].text}")


class NoisyBackward:
    """Noise in what runs outside of the program: backward passes."""

    def __init__(self, trial: int) -> None:
        self.mode = Noise(100 + trial, 2.0)

    def __enter__(self) -> None:
        self.mode.__enter__()

    def __exit__(self, *raised: object) -> None:
        self.mode.__exit__(*raised)


def suspicious(text: str) -> bool:
    lower = text.lower()
    if any(part in lower for part in EXPECTED):
        return False
    return any(part in lower for part in OURS)


def check_program(program: Program, threads: tuple[int, ...] = (1, 3)) -> Outcome:
    """Compile and run ``program``; exceptions of ours are differences too."""
    return check_source(
        program.source(),
        program.inputs.calls,
        program.inputs.noise,
        {"dynamic": program.inputs.dynamic, "options": program.inputs.options},
        threads,
    )


def check_source(
    source: str, calls: int, plan: int, options: dict[str, Any], threads: tuple[int, ...]
) -> Outcome:
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Check(source, calls, plan, options)(threads)
        except Exception as error:
            return Outcome([f"{type(error).__name__}: {str(error)[:3000]}"])
        finally:
            fxstack.reset()
