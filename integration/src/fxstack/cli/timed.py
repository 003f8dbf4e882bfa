"""Run a program on one system and measure its steps: ``python -m fxstack.cli.timed SYSTEM RESULT SCRIPT ...``.

A step ends when an optimizer has stepped. In a program without optimizers, each outermost call of a compiled
function or module is a step.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import json
import resource
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from fxstack.api import compile as fxstack_compile
from fxstack.dropin.program import Program

SYSTEMS = ("eager", "torch.compile", "fxstack")


@dataclass
class Clock:
    """Seconds at which compiled calls begin and end, and at which optimizers have stepped."""

    calls: list[tuple[float, float]] = field(default_factory=list)
    """(begin, end) of each outermost call of a compiled function or module."""
    updates: list[float] = field(default_factory=list)
    """The times at which an optimizer's step ended."""
    _depth: int = 0
    """The number of timed calls that run now, one inside of the other."""

    def seconds(self) -> list[float]:
        """Return the seconds of each step. The first step includes compilation."""
        if len(self.updates) < 2:
            return [end - start for start, end in self.calls]
        begin = min([self.updates[0], *(start for start, _ in self.calls[:1])])
        ends = [begin, *self.updates]
        return [end - start for start, end in itertools.pairwise(ends)]

    def call(self, fn: Callable[..., Any], *args: object, **kwargs: object) -> Any:
        """Call ``fn`` and keep the call's begin and end, unless the call is inside of another timed call."""
        self._depth += 1
        start = self.now()
        try:
            return fn(*args, **kwargs)
        finally:
            self._depth -= 1
            if not self._depth:
                self.calls.append((start, self.now()))

    def update(self, *_: object) -> None:
        self.updates.append(self.now())

    @staticmethod
    def now() -> float:
        """Return the seconds of a monotonic clock, after work on the GPU has ended."""
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return time.perf_counter()

    def timed(self, compiler: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function like ``compiler`` whose compiled functions and modules measure their calls."""

        def compile(model: Any = None, **options: Any) -> Any:
            """Compile ``model`` by ``compiler``. The clock times each call of the compiled function or module."""
            if model is None:
                return functools.partial(compile, **options)
            compiled = compiler(model, **options)
            if isinstance(compiled, torch.nn.Module):
                original = type(compiled)

                def call(module: object, *args: object, **kwargs: object) -> Any:
                    return self.call(original.__call__, module, *args, **kwargs)

                compiled.__class__ = type(original.__name__, (original,), {"__slots__": (), "__call__": call})
                return compiled

            @functools.wraps(compiled)
            def called(*args: object, **kwargs: object) -> Any:
                return self.call(compiled, *args, **kwargs)

            return called

        return compile


def run(system: str, target: str, arguments: list[str], clock: Clock) -> None:
    """Run the script ``target`` with ``arguments``, or call the model ``MODULE:NAME`` for a number of steps.

    For a model, ``arguments`` are the number of steps and an expression for each argument of the call.
    """
    compilers = {
        "eager": lambda model, **_: model,
        "torch.compile": torch.compile,
        "fxstack": fxstack_compile,
    }
    torch.compile = clock.timed(compilers[system])
    register_optimizer_step_post_hook(clock.update)
    torch.manual_seed(0)
    if ":" not in target or Path(target).exists():
        Program(target, tuple(arguments)).execute()
        return
    steps, *expressions = arguments
    module, _, name = target.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    model: Any = getattr(importlib.import_module(module), name)
    if inspect.isclass(model) or (inspect.isfunction(model) and not inspect.signature(model).parameters):
        model = model()
    step = torch.compile(model)
    for _ in range(int(steps)):
        step(*(eval(text, {"torch": torch}) for text in expressions))  # noqa: S307 - the user's own expressions


def user_line(error: BaseException) -> str:
    """Return the innermost line of the error's traceback that belongs to no library, as text; "" if every
    line belongs to one.
    """
    paths = sysconfig.get_paths()
    libraries = (
        "<",
        str(Path(__file__).parents[1]),
        *(paths[key] for key in ("stdlib", "purelib", "platlib")),
    )
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(libraries)]
    return f"{own[-1].filename}:{own[-1].lineno} in {own[-1].name}: {own[-1].line}" if own else ""


def main() -> None:
    """Run a program with a clock, and write the seconds, the memory and the error as JSON.

    ``sys.argv`` has the system, the file for the result, the program and its arguments. ``fxstack bench`` starts
    this module in a process.
    """
    system, result, target, *arguments = sys.argv[1:]
    clock = Clock()
    failure: dict[str, str] = {}
    try:
        run(system, target, arguments, clock)
    except BaseException as error:
        if not isinstance(error, SystemExit) or error.code:
            failure = {"error": f"{type(error).__name__}: {error}", "line": user_line(error)}
        raise
    finally:
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        if torch.cuda.is_initialized():
            memory = torch.cuda.max_memory_allocated()
        found = {"seconds": clock.seconds(), "memory": memory, **failure}
        Path(result).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
