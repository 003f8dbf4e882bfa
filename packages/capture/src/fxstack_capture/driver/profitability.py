"""Profitability: a callable whose compiled calls take longer than plain calls runs in plain Python.

Graph breaks cost time: each piece between two breaks has guards and its own call. A loop that breaks around a
few small operators is slower compiled than interpreted. A whole graph of a few operators can be slower as
well, if it has many guards, or if several cache entries are checked before the right one. Only a measurement
can decide. When a callable has stopped compiling, some of its calls are timed, compiled and plain calls in
turn, in processor time of the thread. Calls that raise are timed like others.

Some calls are not timed. Long calls of a callable with one whole graph are not timed, because their overhead
is small. If a backward runs through the result of a timed call, the callable stays compiled, because
compilation may save time in the backward. When CUDA is in use, no calls are timed, because calls return
before their work is done.
"""

from __future__ import annotations

import statistics
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from types import CodeType
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch
from torch.autograd.graph import Node

from fxstack_capture import torch_compat
from fxstack_capture.driver.errors import TracingWarning
from fxstack_capture.driver.frame_policy.fullgraph import first_frame_of
from fxstack_capture.driver.reports.records import FrameRecord, Tally, Verdict
from fxstack_capture.stance import Stance, current_stance
from fxstack_interchange.user_warnings import warn_user

# Limits: three kinds of calls are not compared: calls whose results hold tensors that need gradients in
# objects of unknown classes, single calls of long loops, and calls on CUDA.

# The results of ``begin`` (see ``native``).
_COMPILED, _TIME_COMPILED, _TIME_PLAIN = 0, 1, 2

_STABLE_CALLS = 4
"""The timing begins after this number of calls without any tracing."""

# The Thue-Morse sequence. If the arguments alternate with any period (for example two sizes), neither side
# gains from it.
_PLAIN_ROUNDS: Final = tuple(n.bit_count() % 2 == 1 for n in range(16))
"""Says for each of 16 successive timed calls whether it runs in plain Python."""

_SLOWER: Final = 1.05
"""A compiled call counts as slower only if the ratio of the medians is above this number."""

_SEPARATION: Final = 0.9
"""The Mann-Whitney statistic that counts as certain: the fraction of pairs (compiled call, plain call) in
which the compiled call is slower.

If the times vary much because the sizes of the arguments vary, the fraction stays below this number.
"""

_MAX_ROUNDS: Final = 4
"""Maximum number of rounds of 16 timed calls. After that, a callable that only looks slower stays compiled."""

_MAX_COMPILING_CALLS: Final = 32
"""Limit of the calls that compile, less a tenth of the calls that do not. Above it, the callable stays in
plain Python.

Each function that a call reaches has its own limits, but a call may reach any number of functions.
"""

_LONG_NS: Final = 1_000_000
"""Nanoseconds. A longer compiled call of a whole graph is not compared, because a plain call could take much
longer.
"""

_FIRST_REST, _MAX_REST = 1_000, 64_000
"""The first and the largest number of plain calls before the next measurement. The number doubles each time.

Measurements are repeated because the arguments of later calls may differ.
"""


@dataclass(slots=True)
class Trial:
    """The timing of one callable. ``native.Optimized`` calls ``begin`` before and ``end`` after each call."""

    tally: Tally
    """Counters of the compiler of the callable."""
    records: list[FrameRecord] | None
    """The list that ``explain`` shows, or None."""
    callable: Any
    """The function or module that was given to ``optimize``."""
    traced: int = -1
    """The value of ``Tally.traced`` at the last stable call."""
    stable_calls: int = 0
    """Number of calls since the compiler last traced a frame."""
    compiled: list[int] = field(default_factory=list)
    """Nanoseconds of the timed compiled calls."""
    plain: list[int] = field(default_factory=list)
    """Nanoseconds of the timed plain calls."""
    rest: int = _FIRST_REST
    """Number of plain calls before the next measurement, if plain calls are faster."""
    has_warned: bool = False
    """Whether the user has been told that the callable runs in plain Python."""
    compiling_calls: float = 0
    """The count that ``_MAX_COMPILING_CALLS`` limits."""

    def begin(self, optimized: Any) -> int:
        """Return the mode of the next call: ``_COMPILED``, ``_TIME_COMPILED`` or ``_TIME_PLAIN``."""
        if current_stance() != Stance():
            return _COMPILED
        if self.traced != self.tally.traced:
            self._start_again()
            self.compiling_calls += 1
            if self.compiling_calls > _MAX_COMPILING_CALLS:
                self._leave_compiling(optimized)
            return _COMPILED
        self.compiling_calls = max(0, self.compiling_calls - 0.1)
        self.stable_calls += 1
        if self.stable_calls <= _STABLE_CALLS:
            return _COMPILED
        if not _can_be_timed():
            optimized.trial = None
            return _COMPILED
        turn = len(self.compiled) + len(self.plain)
        return _TIME_PLAIN if _PLAIN_ROUNDS[turn % len(_PLAIN_ROUNDS)] else _TIME_COMPILED

    def end(self, optimized: Any, plain: bool, nanoseconds: int, result: object) -> None:
        """Record the time of a call. If there are enough times, decide.

        ``plain`` says whether the call ran in plain Python. ``result`` is the return value of the call.
        """
        if self.traced != self.tally.traced:
            self._start_again()
            return
        is_long = self.tally.graphs > 0 and not self.tally.breaks and not plain and nanoseconds > _LONG_NS
        nodes = list(_gradient_nodes(result)) if torch.is_grad_enabled() else []
        if is_long or None in nodes:
            optimized.trial = None
            return
        for node in filter(None, nodes):
            node.register_prehook(partial(_keep_compiled, weakref.ref(optimized)))
        (self.plain if plain else self.compiled).append(nanoseconds)
        rounds, remaining = divmod(len(self.compiled) + len(self.plain), len(_PLAIN_ROUNDS))
        if remaining:
            return
        compiled, interpreted = self.compiled, self.plain
        slower = is_slower(compiled, interpreted)
        if slower is None and rounds < _MAX_ROUNDS:
            return
        self._start_again()
        if not slower:
            optimized.trial = None
            return
        optimized.plain_calls = self.rest
        self.rest = min(2 * self.rest, _MAX_REST)
        self._warn(
            f"where its calls are faster: {_shown(interpreted)}, compiled {_shown(compiled)} (medians of"
            f" {len(interpreted)} calls each; {self._counts()}).",
            "take the graph breaks out (explain() lists them), or compile what it calls between them"
            if self.tally.breaks
            else "compile a larger part of the program, whose calls do more work",
        )

    def _leave_compiling(self, optimized: Any) -> None:
        """Run the next calls in plain Python, because nearly every call compiles."""
        optimized.plain_calls, self.compiling_calls = _MAX_REST, _MAX_COMPILING_CALLS - 2
        self._warn(
            f"because nearly every call compiles ({self._counts()}).",
            "define functions and classes outside of it, and pass objects that outlive the call (the log"
            " fxstack_capture.recompiles has the reasons)",
        )

    def _counts(self) -> str:
        """Return the number of graphs and graph breaks as text for a warning."""
        return f"graphs: {self.tally.graphs}, graph breaks: {self.tally.breaks}"

    def _start_again(self) -> None:
        """Forget the times. Called after a trace, and after a decision."""
        self.traced, self.stable_calls = self.tally.traced, 0
        self.compiled, self.plain = [], []

    def _warn(self, why: str, remedy: str) -> None:
        """Warn once that the callable runs in plain Python, and record the warning.

        ``remedy`` is the text of the warning after "fix:".
        """
        if self.has_warned:
            return
        self.has_warned = True
        code = self._code()
        name = getattr(self.callable, "__qualname__", type(self.callable).__qualname__)
        where = f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name
        text = (
            f"{where} runs in plain Python from now on, {why} fix: {remedy};"
            " leave_unprofitable=False keeps it compiled"
        )
        records = self.records
        if records is not None and code is not None:
            place = code.co_qualname, code.co_filename, code.co_firstlineno
            records.append(FrameRecord(*place, Verdict.PLAIN, why=text))
        warn_user(text, TracingWarning)

    def _code(self) -> CodeType | None:
        """Return the code of the callable's first frame, or None. The warning names its file and line."""
        called = self.callable
        return first_frame_of(called.forward if isinstance(called, torch.nn.Module) else called)


class Trials:
    """The timed callables of one compiler. ``optimize`` adds them, and ``reset`` restarts their timing."""

    def __init__(self, tally: Tally, records: list[FrameRecord] | None) -> None:
        self._tally = tally
        self._records = records
        self._callables: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def add(self, optimized: Any, called: Any) -> None:
        """Begin the timing of ``optimized``, the native wrapper of ``called``."""
        self._callables[optimized] = called
        optimized.trial = Trial(self._tally, self._records, called)

    def restart(self) -> None:
        """Forget the measurements of all callables, and the decisions that were made from them."""
        for optimized, called in [*self._callables.items()]:
            optimized.plain_calls = 0
            optimized.trial = Trial(self._tally, self._records, called)


def is_slower(compiled: list[int], plain: list[int]) -> bool | None:
    """Whether compiled calls take longer than plain calls. The lists have the times in nanoseconds.

    The result is None if the median of the compiled calls is longer, but the difference may be chance. The
    longest eighth of the times is ignored, because the garbage collector may have run in these calls.
    """
    compiled = sorted(compiled)[: -len(compiled) // 8]
    plain = sorted(plain)[: -len(plain) // 8]
    if statistics.median(compiled) <= _SLOWER * statistics.median(plain):
        return False
    slower = sum(c > p for c in compiled for p in plain)
    return slower >= _SEPARATION * len(compiled) * len(plain) or None


def _can_be_timed() -> bool:
    """Whether calls may be timed. This is not so on CUDA, and not with deterministic algorithms.

    With deterministic algorithms, the program wants the same bits in every run. Plain calls may round
    differently.
    """
    return not (torch.cuda.is_initialized() or torch.are_deterministic_algorithms_enabled())


def _keep_compiled(optimized: weakref.ref[Any], _grads: object) -> None:
    """Compile the calls of a callable again, and stop timing them.

    Autograd calls this function when a backward runs through the result of a timed call.
    """
    wrapper = optimized()
    if wrapper is not None:
        wrapper.trial, wrapper.plain_calls = None, 0


def _gradient_nodes(result: object, depth: int = 0) -> Iterator[Node | None]:
    """Yield the autograd nodes with which a backward through ``result`` would begin.

    Yield None for an object that may contain a tensor: an object of an unknown class, or one too deep in
    containers. Only C code reads ``result``, so no method of the program runs.
    """
    if isinstance(result, torch.Tensor):
        with torch_compat.DisableTorchFunction():
            if result.requires_grad:
                yield result.grad_fn
        return
    members = next((m for kind, m in _MEMBERS.items() if isinstance(result, kind)), None)
    if members is not None and depth < _DEEPEST:
        for member in members(result):
            yield from _gradient_nodes(member, depth + 1)
    elif type(result) not in _WITHOUT_TENSORS:
        yield None


_MEMBERS: Final[dict[type, Any]] = {
    dict: dict.values,
    list: list.__iter__,
    tuple: tuple.__iter__,
    set: set.__iter__,
    frozenset: frozenset.__iter__,
}
"""The containers that are searched for tensors. The value is the C function that yields the items."""
_DEEPEST: Final = 8
"""The largest depth of nested containers that is searched."""
_WITHOUT_TENSORS: Final = frozenset({type(None), bool, int, float, complex, str, bytes})
"""The classes of values that never contain a tensor."""


def _shown(times: list[int]) -> str:
    """Return the median of the times (in nanoseconds) as text, for example "1.5 ms"."""
    median = statistics.median(times)
    return f"{median / 1e6:.3g} ms" if median >= 1e6 else f"{median / 1e3:.3g} us"
