"""Measure two calls of a compiled graph: the seconds of each step in one, the memory in the other.

The memory of a backward is not measured.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch

from fxstack.trace.records import Allocated, Body, Measured, MeasuredMemory, StepTime
from fxstack_inductor import Lowered
from fxstack_inductor.errors import InductorError
from fxstack_inductor.targets.c.profile import profile_steps

TIMED_CALL, MEMORY_CALL = 3, 4
"""Numbers of the measured calls: earlier calls load code and fill caches."""

Compiled = Callable[..., Any]


def measure_calls(
    compiled: Compiled, lowered: Lowered, graph: int, role: str, tell: Callable[[Body], object]
) -> Compiled:
    """Return ``compiled`` with clocks: its third and fourth call are measured, and ``tell`` gets the records.

    The third call computes the same results by the same kernels, with a clock around each step. For this call
    the kernels are compiled again, unless they are in the cache on disk.
    """
    boxed = bool(vars(compiled).get("boxed", False))
    calls = itertools.count(1)  # next() is atomic, threads may call

    def run(*args: Any) -> Any:
        """Call the compiled graph. Measure the times of steps at one call, and the memory at another."""
        number = next(calls)
        if number == TIMED_CALL:
            try:
                timed = profile_steps(lowered, boxed=boxed)
            except InductorError:  # without a C compiler, the compiled graph still runs
                return compiled(*args)
            start = perf_counter()
            results = timed.run(*args)
            spent = perf_counter() - start
            steps = tuple(StepTime(name, seconds) for name, seconds in timed.seconds.items())
            tell(Measured(graph, role, spent, steps))
            return results
        # A boxed graph (a backward) frees its inputs. The profiler would warn about the freed memory, because
        # it has not seen the allocation.
        if number == MEMORY_CALL and not boxed and not torch.autograd._profiler_enabled():
            return _measure_memory(compiled, args, lambda moments: tell(MeasuredMemory(graph, role, moments)))
        return compiled(*args)

    vars(run).update(vars(compiled))
    return run


def _measure_memory(
    compiled: Compiled, args: tuple[Any, ...], tell: Callable[[tuple[Allocated, ...]], object]
) -> Any:
    """Call ``compiled`` under the memory profiler; ``tell`` gets each change of the allocated bytes."""
    os.environ.setdefault(
        "KINETO_LOG_LEVEL", "99"
    )  # the profiler of CUDA builds reports that there is no GPU
    with torch.autograd.profiler.profile(use_cpu=True, profile_memory=True) as profile:
        results = compiled(*args)
    changes = [event for event in profile.kineto_results.events() if event.name() == "[memory]"]
    changes.sort(key=lambda event: event.start_ns())
    begin = changes[0].start_ns() if changes else 0
    alive = itertools.accumulate(event.nbytes() for event in changes)
    tell(
        tuple(
            Allocated((event.start_ns() - begin) / 1e9, bytes_)
            for event, bytes_ in zip(changes, alive, strict=True)
        )
    )
    return results
