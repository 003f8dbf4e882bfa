"""Run a random program compiled, in plain Python and with torch's own operators, and compare what one can observe."""

from __future__ import annotations

import linecache
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from hop_programs import PLAIN, TORCHS, Pair, Raised, values_difference
from torch import nn
from torch.nn import functional
from torch.utils import _pytree as pytree

import fxstack
from random_nests.writer import Program

os.environ.setdefault("FXSTACK_RAISE_FAILURES", "1")  # a defect is no fallback here


def _rows(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.vmap(fn)`` as a loop."""
    return lambda *columns: torch.stack([fn(*row) for row in zip(*columns, strict=True)])


PLAIN_NESTS = SimpleNamespace(
    **vars(PLAIN), wrap=lambda fn, *args: fn(*args), vmap=_rows, grad=torch.func.grad
)
TORCH_NESTS = SimpleNamespace(
    **vars(TORCHS), wrap=torch.ops.higher_order.wrap, vmap=torch.vmap, grad=torch.func.grad
)


def scaled(pair: Any) -> Any:
    """A tensor times a number that a branch gave."""
    return pair[0] * pair[1]


@dataclass(slots=True)
class Outcome:
    """``difference``: None, or what differs from plain Python and from torch's operators."""

    difference: str | None
    graphs: int = 0
    breaks: tuple[str, ...] = ()
    """The text of each graph break."""
    refused: str | None = None
    """The exception of the compiled program, where torch's own operators raise it too and plain Python does not."""


def _state() -> Any:
    torch.manual_seed(0)
    return SimpleNamespace(
        w=torch.randn(3),
        table=torch.randn(8, 3),
        buf=torch.zeros(3),
        cache=torch.zeros(4, 3),
        one=torch.tensor(1),
        k=2,
        model=nn.Linear(3, 3),
    )


def function_of(program: Program) -> Callable[..., Any]:
    """The function of a program, whose source the frames of a traceback show."""
    source = program.source()
    name = f"program_{abs(hash(source)):x}"
    file = f"<{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    module = ModuleType(name)
    vars(module).update(torch=torch, F=functional, Pair=Pair, scaled=scaled)
    sys.modules[name] = module
    exec(compile(source, file, "exec"), vars(module))
    return module.program


class Run:
    """A program with operators ``ops``, called several times on one state; ``wrap`` compiles it."""

    def __init__(self, program: Program, ops: Any, wrap: Callable[[Any], Any] = lambda fn: fn) -> None:
        self.program = program
        self.state = state = _state()
        function = function_of(program)

        def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
            return function(ops, state, x, y)

        self.fn = wrap(fn)

    def arguments(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The arguments of the calls: other values, with ``dynamic`` also another number of rows."""
        generator = torch.Generator().manual_seed(7)
        rows = (4, 5) if self.program.dynamic else (4, 4)
        made = [(torch.randn(n, 3, generator=generator), torch.randn(3, generator=generator)) for n in rows]
        return [made[0], (made[1][0] - 1, made[1][1] + 0.5)]

    def call(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        """The result, the state, the gradients, and the next random number; or what was raised."""
        state, gradients = self.state, self.program.gradients
        given = [x.clone().requires_grad_(gradients), y.clone().requires_grad_(gradients)]
        state.model.requires_grad_(gradients)
        leaves = [*given, state.w.requires_grad_(gradients), *state.model.parameters()]
        torch.manual_seed(1)
        try:
            result = self.fn(*given)
        except Exception as error:
            return Raised(error)
        following = torch.rand(1)
        written = [t.clone() for t in (state.buf, state.cache, state.one)]
        outputs = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
        if outputs:
            try:
                taken = torch.autograd.grad(sum(t.sum() for t in outputs), leaves, allow_unused=True)
            except Exception as error:
                return Raised(error)
        else:
            taken = [None] * len(leaves)
        # A branch that is not taken has gradients of zero in torch, and none in plain Python.
        taken = [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(taken, leaves, strict=True)]
        return result, written, following, taken


def difference(found: Any, expected: Any) -> str | None:
    """What differs between two outcomes."""
    if isinstance(found, Raised) or isinstance(expected, Raised):
        both = isinstance(found, Raised) and isinstance(expected, Raised)
        if both and type(found.error) is type(expected.error):
            return None
        return f"{_text(found)} is not {_text(expected)}"[:900]
    return values_difference(found, expected)


def _text(outcome: Any) -> str:
    if not isinstance(outcome, Raised):
        return "a result"
    return f"{type(outcome.error).__name__}: {str(outcome.error)[:400]}"


def check(program: Program, backend: str = "aot_eager") -> Outcome:
    """Compare a program with plain Python, and where it differs, with torch's own operators in eager."""
    compiled: list[Any] = []

    def wrap(fn: Any) -> Any:
        compiled.append(fxstack.compile(fn, backend=backend, dynamic=program.dynamic or None))
        return compiled[0]

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        plain, mine = Run(program, PLAIN_NESTS), Run(program, TORCH_NESTS, wrap)
        text, refused = None, None
        calls = plain.arguments()
        found = [mine.call(*call) for call in calls]
        expected = [plain.call(*call) for call in calls]
        differences = [difference(f, e) for f, e in zip(found, expected, strict=True)]
        if any(differences):
            eager = Run(program, TORCH_NESTS)
            theirs = [eager.call(*call) for call in calls]
            for f, t, d in zip(found, theirs, differences, strict=True):
                if d is None:
                    continue
                beside = difference(f, t)
                if beside is None:
                    refused = _text(f)
                else:
                    text = f"{d}; beside torch's operators: {beside}"
                    break
    log = fxstack.compile_log(compiled[0])
    breaks = tuple(f"{record.reason.id}: {record.detail}" for record in log.breaks)
    messages = [str(warning.message) for warning in said]
    breaks += tuple(f"not compiled: {m[:400]}" for m in messages if "The captured graph runs in eager" in m)
    text = text or next((message[:900] for message in messages if "internal error" in message), None)
    return Outcome(text, log.graph_count, breaks, refused)
