"""The bytes that a launch of a Triton kernel reads and writes, from its text and arguments: ``traffic(kernel, grid, arguments)``.

NumPy computes the kernel's integers and addresses for all programs of the grid and all turns of its loops at once; floating point
and loaded values stay unknown. Each load and store then gives the addresses that it touches. A buffer's traffic is its number of
different bytes. In a large grid some programs are computed and stand for the others. Then a buffer counts what its programs touch
together, but at most the range that its addresses span, because programs that read the same bytes find them in a cache.
Addresses that depend on loaded values (a gather) are taken to be different from each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from cuda_ttir import dot_shapes
from cuda_values import UNKNOWN, Pointer, Unknown, at_turn, compute, difference, gathered, merged, signed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuda_ttir import Kernel, Operation, Type

EXACT, SAMPLED = 1 << 18, 1 << 16
"""Elements of a tile times programs: up to the first all programs are computed, else as many as make the second."""


@dataclass
class Buffer:
    """The accesses of one kind to one buffer: their addresses, as far as they are known."""

    exact: list[np.ndarray] = field(default_factory=list)
    """Spans as pairs: first byte times 16, plus size."""
    total: float = 0.0
    low: float = np.inf
    high: float = -np.inf
    indirect: float = 0.0
    sampled: bool = False

    def bytes(self) -> float:
        if self.exact and not self.sampled:
            keys = _unique(np.concatenate(self.exact))
            return float((keys & 15).sum() + self.indirect)
        span = self.high - self.low if self.high > self.low else 0.0
        return min(self.total, span) + self.indirect


@dataclass(frozen=True)
class Traffic:
    """Bytes of one launch: different bytes that it reads and writes, and all that its programs ask the caches for."""

    read: float
    written: float
    touched: float
    operations: float
    """Of its products of tiles."""
    sampled: bool

    @property
    def moved(self) -> float:
        return self.read + self.written


@dataclass
class _Batch:
    """The programs, or turns of a loop, that are computed: how many each stands for, and its place in the batch around."""

    weights: np.ndarray
    origin: np.ndarray


def traffic(kernel: Kernel, grid: Sequence[int], arguments: Sequence[int]) -> Traffic:
    """Raises ValueError if the kernel has more arguments than were passed."""
    return _Evaluation(kernel, grid, arguments).run()


class _Evaluation:
    def __init__(self, kernel: Kernel, grid: Sequence[int], arguments: Sequence[int]) -> None:
        self._kernel, self._grid = kernel, grid
        self._random = np.random.default_rng(0)
        self._buffers: dict[tuple[str, Any], Buffer] = {}
        self._touched = self._operations = 0.0
        self._silent = 0
        self._values: dict[str, tuple[int, Any]] = {}
        if len(arguments) < len(kernel.arguments):
            message = f"{kernel.name}: {len(arguments)} parameters for {len(kernel.arguments)} arguments"
            raise ValueError(message)
        programs = int(np.prod(grid, dtype=np.int64))
        self._batches = [self._programs(programs)]
        self._sampled = len(self._batches[0].weights) < programs
        for (name, kind), value in zip(kernel.arguments, arguments, strict=False):
            self._values[name] = (0, self._argument(kind, value))

    def run(self) -> Traffic:
        self._block(self._kernel.body)
        sums = {"read": 0.0, "write": 0.0}
        for (access, _), buffer in self._buffers.items():
            buffer.sampled |= self._sampled
            sums[access] += buffer.bytes()
        return Traffic(sums["read"], sums["write"], self._touched, self._operations, self._sampled)

    def _programs(self, count: int) -> _Batch:
        tile = self._kernel.largest
        chosen = np.arange(count)
        if count * tile > EXACT:
            most = max(8, SAMPLED // tile)
            if most < count:
                chosen = self._some(count, most)
        return _Batch(np.full(len(chosen), count / len(chosen)), chosen)

    def _some(self, count: int, most: int) -> np.ndarray:
        """``most`` of ``count`` numbers, one of each stretch of equal length, with the first and the last."""
        ends = np.linspace(0, count, most + 1).astype(np.int64)
        chosen = self._random.integers(ends[:-1], ends[1:])
        chosen[0], chosen[-1] = 0, count - 1
        return chosen

    @staticmethod
    def _argument(kind: Type, value: int) -> Any:
        if kind.pointer:
            return Pointer(value, np.zeros(1, np.int64))
        if not kind.integer:
            return UNKNOWN
        number = signed(value, int(kind.element[1:]))
        return np.full(1, number, bool if kind.element == "i1" else np.int64)

    # values, whose first dimension is the batch or 1

    def _get(self, name: str) -> Any:
        level, value = self._values[name]
        for batch in self._batches[level + 1 :]:
            value = gathered(value, batch.origin)
        if level < len(self._batches) - 1:
            self._values[name] = (len(self._batches) - 1, value)
        return value

    def _set(self, names: Sequence[str], values: Sequence[Any]) -> None:
        level = len(self._batches) - 1
        for name, value in zip(names, values, strict=True):
            self._values[name] = (level, value)

    def _block(self, operations: list[Operation]) -> list[Any]:
        """Compute the operations; the values of the one that ends the block."""
        for operation in operations:
            if operation.name in {"scf.yield", "tt.return"}:
                return [self._get(n) for n in operation.operands]
            rule = _RULES.get(operation.name)
            values = rule(self, operation) if rule else self._compute(operation)
            self._set(operation.results, values)
        return []

    def _compute(self, op: Operation) -> list[Any]:
        if op.name == "tt.get_program_id":
            return [self._program(_axis(op))]
        if op.name == "tt.get_num_programs":
            return [np.full(1, self._grid[_axis(op)], np.int64)]
        if op.regions or len(op.results) != 1:
            return [UNKNOWN] * len(op.results)
        return [compute(op, [self._get(n) for n in op.operands])]

    def _program(self, axis: int) -> np.ndarray:
        number = self._batches[0].origin
        for size in self._grid[:axis]:
            number = number // size
        number = number % self._grid[axis]
        for batch in self._batches[1:]:
            number = number[batch.origin]
        return number

    def _inside(self, batch: _Batch, work: Callable[[], Any]) -> Any:
        """Run ``work`` with a further batch; what it defines is forgotten."""
        outer = dict(self._values)
        self._batches.append(batch)
        try:
            return work()
        finally:
            self._batches.pop()
            self._values = outer

    @property
    def _weights(self) -> np.ndarray:
        return self._batches[-1].weights

    # control flow

    def loop(self, op: Operation) -> list[Any]:
        counter, low, high, step, *pairs = op.operands
        firsts = [self._get(n) for n in pairs[1::2]]
        bounds = [self._get(n) for n in (low, high, step)]
        count = len(self._weights)
        if any(isinstance(b, Unknown) for b in bounds):
            bounds = [np.zeros(1, np.int64), np.ones(1, np.int64), np.ones(1, np.int64)]
        begin, end, by = (np.broadcast_to(b, (count,)) for b in bounds)
        turns = np.maximum(0, -((begin - end) // by))
        slopes = self._slopes(op, counter, begin, pairs[::2], firsts)
        origin, turn, weights = self._turns(turns)

        def body() -> None:
            self._set([counter], [begin[origin] + turn * by[origin]])
            self._set(
                pairs[::2],
                [
                    at_turn(gathered(f, origin), gathered(s, origin), turn)
                    for f, s in zip(firsts, slopes, strict=True)
                ],
            )
            self._block(op.regions[0])

        if len(origin):
            self._inside(_Batch(weights, origin), body)
        return [at_turn(f, s, turns) for f, s in zip(firsts, slopes, strict=True)]

    def _slopes(
        self, op: Operation, counter: str, begin: np.ndarray, names: list[str], firsts: list[Any]
    ) -> list[Any]:
        """What a turn adds to each carried value: found by the first turn; unknown for what is not an integer."""
        if all(isinstance(f, Unknown) for f in firsts):
            return [UNKNOWN] * len(firsts)

        def body() -> list[Any]:
            self._set([counter], [begin])
            self._set(names, firsts)
            return [difference(b, a) for a, b in zip(firsts, self._block(op.regions[0]), strict=True)]

        self._silent += 1
        try:
            return self._inside(_Batch(self._weights, np.arange(len(self._weights))), body)
        finally:
            self._silent -= 1

    def _turns(self, turns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For each computed turn its member of the batch, its number, and its weight."""
        total = int(turns.sum())
        chosen = np.arange(total)
        if total * self._kernel.largest > 2 * EXACT:
            most = max(8, SAMPLED // self._kernel.largest)
            if most < total:
                chosen = self._some(total, most)
                self._sampled = True
        ends = np.cumsum(turns)
        origin = np.searchsorted(ends, chosen, side="right")
        turn = chosen - (ends - turns)[origin]
        scale = total / len(chosen) if len(chosen) else 1.0
        return origin, turn, self._weights[origin] * scale

    def branch(self, op: Operation) -> list[Any]:
        condition = self._get(op.operands[0])
        count, found = len(self._weights), []
        known = isinstance(condition, np.ndarray)
        for taken, region in zip((True, False), op.regions, strict=False):
            where = np.arange(count)
            if known:
                where = np.flatnonzero(np.broadcast_to(condition, (count,)) == taken)
            if len(where):
                made = self._inside(_Batch(self._weights[where], where), lambda r=region: self._block(r))
                found.append([(where, value) for value in made])
        if not known:
            return [UNKNOWN] * len(op.results)
        return [merged(count, list(branches)) for branches in zip(*found, strict=True)]

    def product(self, op: Operation) -> list[Any]:
        (rows, inner), (_, columns) = dot_shapes(op)
        if not self._silent:
            self._operations += 2.0 * rows * inner * columns * float(self._weights.sum())
        return [UNKNOWN]

    # memory

    def load(self, op: Operation) -> list[Any]:
        mask = self._get(op.operands[1]) if len(op.operands) > 1 else UNKNOWN
        self._access("read", self._get(op.operands[0]), mask, op.types[0])
        return [UNKNOWN]

    def store(self, op: Operation) -> list[Any]:
        mask = self._get(op.operands[2]) if len(op.operands) > 2 else UNKNOWN
        self._access("write", self._get(op.operands[0]), mask, op.types[0])
        return []

    def atomic(self, op: Operation) -> list[Any]:
        pointer, *_ = values = [self._get(n) for n in op.operands]
        mask = values[2] if op.name == "tt.atomic_rmw" and len(values) > 2 else UNKNOWN
        for kind in ("read", "write"):
            self._access(kind, pointer, mask, op.types[0])
        return [UNKNOWN] * len(op.results)

    def _access(self, kind: str, pointer: Any, mask: Any, element: Type) -> None:
        """Note which bytes are touched at ``pointer`` where ``mask`` holds."""
        if self._silent:
            return
        if isinstance(pointer, Pointer) and isinstance(pointer.base, np.ndarray):
            self._access_each(kind, pointer, mask, element)
            return
        count, weights = len(self._weights), self._weights
        size, shape = element.bytes, element.shape
        whole = (count, *shape)
        known = isinstance(mask, np.ndarray)
        allowed = np.broadcast_to(mask, whole).reshape(count, -1) if known else None
        buffer = self._buffers.setdefault(
            (kind, pointer.base if isinstance(pointer, Pointer) else UNKNOWN), Buffer()
        )
        if not isinstance(pointer, Pointer) or isinstance(pointer.offset, Unknown):
            each = allowed.sum(1) if known else np.full(count, int(np.prod(shape)))
            buffer.indirect += float((each * weights).sum()) * size
            self._touched += float((each * weights).sum()) * size
            return
        offsets = np.broadcast_to(pointer.offset, whole).reshape(count, -1)
        different = _different(offsets, allowed)
        self._touched += float((different * weights).sum()) * size
        buffer.total += float((different * weights).sum()) * size
        chosen = offsets[allowed] if known else offsets
        if chosen.size:
            buffer.low = min(buffer.low, float(chosen.min()))
            buffer.high = max(buffer.high, float(chosen.max()) + size)
        if not self._sampled:
            buffer.exact.append(_unique(chosen.reshape(-1)) * 16 + size)

    def _access_each(self, kind: str, pointer: Pointer, mask: Any, element: Type) -> None:
        """Note an access to one of several buffers, which the programs choose."""
        bases = np.broadcast_to(pointer.base, (len(self._weights),))
        for base in np.unique(bases):
            where = np.flatnonzero(bases == base)
            offset, allowed = (gathered(v, where) for v in (pointer.offset, mask))
            self._inside(
                _Batch(self._weights[where], where),
                partial(self._access, kind, Pointer(int(base), offset), allowed, element),
            )


def _unique(values: np.ndarray) -> np.ndarray:
    """``numpy.unique`` by sorting, which for addresses is many times as fast as its table of hashes."""
    ordered = np.sort(values)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered


def _different(offsets: np.ndarray, allowed: np.ndarray | None) -> np.ndarray:
    """How many different allowed offsets each row has."""
    if allowed is not None:
        offsets = np.where(allowed, offsets, -1 << 62)
    ordered = np.sort(offsets, axis=1)
    count = 1 + (np.diff(ordered, axis=1) != 0).sum(1)
    return count if allowed is None else count - (ordered[:, 0] == -1 << 62)


def _axis(op: Operation) -> int:
    return "xyz".index(op.text.split()[1])


_RULES: dict[str, Callable[[_Evaluation, Operation], list[Any]]] = {
    "scf.for": _Evaluation.loop,
    "scf.if": _Evaluation.branch,
    "tt.dot": _Evaluation.product,
    "tt.load": _Evaluation.load,
    "tt.store": _Evaluation.store,
    "tt.atomic_rmw": _Evaluation.atomic,
    "tt.atomic_cas": _Evaluation.atomic,
}
