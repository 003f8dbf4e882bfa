"""What a run of a program shows, as plain records, and how two of them differ."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import io
import random
import re
import types
import warnings
from typing import Any

import torch

IGNORED_WARNINGS = ("deprecat", "TF32", "non-writable", "lr_scheduler", "Anomaly")


@dataclasses.dataclass
class Seen:
    """A tensor as it was at one moment."""

    value: torch.Tensor
    facts: dict[str, object]
    view: object = None


@dataclasses.dataclass
class Observed:
    """One run: a list of named records, each of plain values and ``Seen``."""

    records: list[tuple[str, Any]] = dataclasses.field(default_factory=list)
    warned: list[str] = dataclasses.field(default_factory=list)


def strides(t: torch.Tensor) -> tuple[int, ...]:
    """Those that matter: of dimensions of more than one element."""
    return tuple(s for n, s in zip(t.shape, t.stride()) if n > 1) if t.numel() else ()


def leaf(t: torch.Tensor) -> bool | str:
    """Autograd raises for one of several views after a change of their base."""
    try:
        return t.is_leaf
    except RuntimeError as error:
        return str(error)


def message(error: Exception) -> str:
    """Its text without what autograd says of its own graph and counts, which compiled code has others of."""
    text = re.sub(r"Function \w+ (returned an invalid gradient) at index \d+", r"\1", str(error))
    return re.sub(r"(modified by an inplace operation): .* (Hint: )", r"\1. \2", text)


def snapshot(t: torch.Tensor) -> Seen:
    facts: dict[str, object] = {
        "dtype": t.dtype,
        "shape": tuple(t.shape),
        "requires_grad": t.requires_grad,
        "is_leaf": leaf(t),
        "class": type(t).__name__,
    }
    if t.layout is torch.strided:
        facts["strides"] = strides(t)
        facts["offset"] = t.storage_offset() if t.numel() and t._is_view() else 0
        facts["conj"] = t.is_conj()
    return Seen(t.detach().clone(), facts)


class Recorder:
    """Turns values into records, and remembers the tensors to tell which share memory."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self.known: dict[int, object] = {}

    def record(self, value: Any, depth: int = 0) -> Any:
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
            return snapshot(value)
        if isinstance(value, (bool, int, float, complex, str, type(None))):
            return value
        if depth > 6:
            return "deep"
        down = lambda v: self.record(v, depth + 1)
        name = type(value).__qualname__
        if isinstance(value, (list, tuple, collections.deque)):
            return (name, [down(v) for v in value])
        if isinstance(value, (set, frozenset)):
            return (name, sorted(map(repr, value)))
        if isinstance(value, dict):
            return (name, [(down(k), down(v)) for k, v in value.items()])
        if isinstance(value, torch.nn.Module):
            return (name, self.module(value, down))
        if isinstance(value, (types.FunctionType, torch.dtype, torch.device, slice, type)):
            return (name, getattr(value, "__qualname__", repr(value)))
        if hasattr(value, "__dict__"):
            return (name, [(k, down(v)) for k, v in vars(value).items()])
        return name

    def module(self, value: torch.nn.Module, down: Any) -> Any:
        own = {k: v for k, v in vars(value).items() if not k.startswith("_")}
        parts = {**dict(value.named_parameters()), **dict(value.named_buffers())}
        return [(k, down(v)) for k, v in {**own, **parts}.items()]

    def sharing(self) -> list[tuple[int, int, object]]:
        """For each tensor in order: the first that is it, the first on its storage, whose view it is."""
        ts = [t for t in self.tensors if t.layout is torch.strided]
        ids: dict[int, int] = {}
        storages: dict[int, int] = {}
        for at, t in enumerate(ts):
            ids.setdefault(id(t), at)
            storages.setdefault(t.untyped_storage()._cdata, at)
        return [
            (
                ids[id(t)],
                storages[t.untyped_storage()._cdata],
                ids.get(id(t._base), "outside") if t._base is not None else None,
            )
            for t in ts
        ]


def floats_of(value: Any) -> list[torch.Tensor]:
    """Float results with a gradient, in order, each once."""
    if isinstance(value, torch.Tensor):
        return [value] if value.requires_grad and value.is_floating_point() else []
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple, collections.deque)):
        return [t for v in value for t in floats_of(v)]
    return []


def is_leaf(tensor: torch.Tensor) -> bool:
    """No view that autograd gives no function: it raises for whoever asks."""
    try:
        return tensor.is_leaf
    except RuntimeError:
        return False


class Run:
    """One run of a program's calls; ``made`` is called for each, compiled or not."""

    def __init__(self, space: dict[str, Any], calls: int, plan: int) -> None:
        self.space, self.calls, self.plan = space, calls, plan
        self.seen = Observed()
        self.kept: list[Any] = []

    def reset(self) -> None:
        self.space["OUT"] = io.StringIO()
        self.space["STATE"] = {"calls": 0, "list": []}
        self.space["COUNT"] = 0
        self.space["Box"].total = 0

    def note(self, name: str, value: Any) -> None:
        self.seen.records.append((name, value))

    def __call__(self, made: Any, module: Any) -> Observed:
        self.reset()
        printed = io.StringIO()
        with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(printed):
            warnings.simplefilter("always")
            lasting = self.space["state"]()
            for call in range(self.calls):
                self.call(made, module, lasting, call)
                self.note(f"{call} printed", printed.getvalue())
        self.seen.warned = [str(w.message) for w in caught]
        return self.seen

    def call(self, made: Any, module: Any, lasting: list[Any], call: int) -> None:
        torch.default_generator.manual_seed(call)
        random.seed(call)
        arguments = self.space["arguments"](call)
        result = None
        try:
            result = made(*arguments, *lasting)
        except Exception as error:
            self.note(f"{call} raised", (type(error).__name__, message(error)))
        recorder = Recorder()
        everything = [result, list(arguments), lasting, module, self.kept]
        for name, value in zip(("result", "arguments", "state", "module", "earlier"), everything):
            self.note(f"{call} {name}", recorder.record(value))
        self.note(f"{call} sharing", recorder.sharing())
        space = self.space
        python = (space["OUT"].getvalue(), space["COUNT"], space["Box"].total)
        self.note(f"{call} python", [python, Recorder().record(space["STATE"])])
        self.random(f"{call} generators")
        if (self.plan >> 2) % 3:
            self.backward(result, arguments, lasting, module, call)
        self.kept.append(result)

    def random(self, name: str) -> None:
        self.note(name, (torch.get_rng_state().sum().item(), random.random(), torch.is_grad_enabled()))

    def backward(self, result: Any, arguments: Any, lasting: Any, module: Any, call: int) -> None:
        """Gradients of the results: together, or one after the other, or twice."""
        outputs = floats_of(result)
        if not outputs:
            return
        failed = False
        try:
            torch.default_generator.manual_seed(100 + call)
            weighted = [weight(t, k) for k, t in enumerate(outputs)]
            if self.plan % 4 == 0:
                for part in weighted:
                    part.backward(retain_graph=True)
            else:
                total = sum(weighted)
                if self.plan % 4 == 1:
                    total.backward(retain_graph=True)
                total.backward()
        except Exception as error:
            self.note(f"{call} backward raised", (type(error).__name__, message(error)))
            failed = True
        leaves = [*arguments, *(lasting[0]), lasting[2].value]
        leaves += list(module.parameters()) if isinstance(module, torch.nn.Module) else []
        leaves = [t for t in leaves if isinstance(t, torch.Tensor) and is_leaf(t)]
        if failed:  # in the middle of it, at a place that depends on the order of autograd's nodes
            for t in leaves:
                t.grad = None
        grads = [t.grad for t in leaves]
        self.note(f"{call} gradients", Recorder().record(grads))
        self.random(f"{call} generators after backward")
        if self.plan % 2 and isinstance(module, torch.nn.Module):
            with torch.no_grad():
                for p in module.parameters():
                    if p.grad is not None:
                        p.sub_(p.grad, alpha=0.01)


def weight(t: torch.Tensor, k: int) -> torch.Tensor:
    wide = t.double()
    ramp = torch.linspace(0.5, 1.5, max(t.numel(), 1), dtype=torch.float64)[: t.numel()]
    return (wide * ramp.reshape(t.shape)).sum() * (1 + k)


TOLERANCE = {
    torch.float64: 1e-10,
    torch.complex128: 1e-10,
    torch.float32: 1e-4,
    torch.complex64: 1e-4,
    torch.float16: 4e-3,
    torch.bfloat16: 3e-2,
}


@dataclasses.dataclass
class Difference:
    """Where two runs differ; ``values`` where by numbers of tensors alone, which rounding may explain."""

    path: str
    text: str
    got: torch.Tensor | None = None
    want: torch.Tensor | None = None


class Comparison:
    """All differences of two runs. ``coarsest`` is the least precise dtype in the program."""

    def __init__(self, coarsest: float, *, exactly: bool = False) -> None:
        self.coarsest, self.exactly = coarsest, exactly
        self.found: list[Difference] = []

    def __call__(self, got: Observed, want: Observed) -> list[Difference]:
        for (name, mine), (other, theirs) in zip(got.records, want.records):
            if name != other:
                self.found.append(
                    Difference(name, f"{name} {brief(mine)} instead of {other} {brief(theirs)}")
                )
                return self.found
            self.compare(mine, theirs, name)
        if len(got.records) != len(want.records):
            self.found.append(Difference("records", "another number of records"))
        return self.found

    def compare(self, got: Any, want: Any, path: str) -> None:
        if isinstance(want, Seen) and isinstance(got, Seen):
            self.tensors(got, want, path)
        elif isinstance(want, (list, tuple)) and isinstance(got, (list, tuple)):
            if len(got) != len(want):
                self.found.append(Difference(path, f"{brief(got)} instead of {brief(want)}"))
                return
            for at, (mine, theirs) in enumerate(zip(got, want)):
                self.compare(mine, theirs, f"{path}.{at}")
        elif isinstance(want, float) and isinstance(got, float) and "generators" not in path:
            self.values(torch.tensor(got).double(), torch.tensor(want).double(), path)
        elif type(got) is not type(want) or (got != want and got == got):
            self.found.append(Difference(path, f"{brief(got)} instead of {brief(want)}"))

    def tensors(self, got: Seen, want: Seen, path: str) -> None:
        if got.facts != want.facts:
            names = [n for n in want.facts if got.facts.get(n) != want.facts[n]]
            text = ", ".join(f"{n} {got.facts.get(n)} instead of {want.facts[n]}" for n in names)
            self.found.append(Difference(path, text))
        elif want.value.layout is torch.strided:
            self.values(got.value, want.value, path)

    def values(self, got: torch.Tensor, want: torch.Tensor, path: str) -> None:
        if want.dtype is torch.complex32 and got.dtype is want.dtype:  # has no comparisons
            got, want = torch.view_as_real(got), torch.view_as_real(want)
        if got.shape != want.shape or same(got, want):
            return
        if want.is_floating_point() or want.is_complex():
            size = want.abs().double()
            size = size.where(size.isfinite(), torch.zeros(())).max().item() if size.numel() else 0
            limit = 0.0 if self.exactly else max(TOLERANCE[want.dtype], self.coarsest)
            if torch.allclose(got, want, limit, limit * max(size, 1e-3), equal_nan=True):
                return
        self.found.append(Difference(path, f"{values(got)} instead of {values(want)}", got, want))


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a, b)


def brief(value: Any) -> str:
    if isinstance(value, Seen):
        return f"tensor {value.facts['dtype']} {value.facts['shape']}"
    return repr(value)[:300]


def values(t: torch.Tensor) -> str:
    return f"{t.flatten()[:6].tolist()}"
