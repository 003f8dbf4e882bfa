"""Triton text of the random numbers of dropout: the numbers of eager's CUDA kernel (``lower.host.draws``).

Philox4x32-10 is Triton's own function. Its counter is (position in the stream, two words; number of the thread, two
words), as in cuRAND, and cuRAND makes a number between 0 and 1 from a word by ``word * 2**-32 + 2**-33``.

One call of Philox gives four words and is the most expensive part of a dropout. In a tile whose last axis runs along
memory, four neighbours use the four words of one call.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxstack_inductor.ir.expr import of_atom
from fxstack_inductor.ir.kernel import Constant, IndexValue, Loop, Value

# Limits: each element calls Philox along other axes, with symbolic sizes, without vectors, and for inputs of the graph,
# whose addresses decide about vectors.

WORDS = 4
"""The words of one call of Philox."""


def uniform(
    arguments: Sequence[str], values: Sequence[Value], axis: Sequence[Loop], lanes: int, rank: int
) -> str:
    """Return Triton text of the numbers of a tile: ``arguments`` are the operands' texts, ``values`` their values.

    ``axis``: the loops along the last axis of a tile of ``rank`` axes, which has ``lanes`` points along it.
    """
    *_, vector, memory, _logical = values
    if lanes >= WORDS and _takes_four(vector) and _runs_along(memory, axis):
        return f"_eager_uniform_by_four({', '.join(arguments[:-1])}, {rank})"
    return f"_eager_uniform({', '.join(arguments)})"


def _takes_four(vector: Value) -> bool:
    """Whether a thread of eager's kernel is known to use all words of a call for neighbours."""
    return isinstance(vector, Constant) and int(vector.text) % WORDS == 0


def _runs_along(memory: Value, axis: Sequence[Loop]) -> bool:
    """Whether each four points of a tile from a multiple of four on are such elements of memory."""
    if not axis or not isinstance(memory, IndexValue):
        return False
    last, extent = axis[-1].var, axis[-1].extent.as_int()
    rest = memory.expr - of_atom(last)
    steps = [coefficient for _, coefficient in rest.terms]
    return (
        extent is not None
        and last not in rest.variables
        and not any(number % WORDS for number in (extent, *steps))
    )


PRELUDE = """

@triton.jit
def _eager_words(seed, offset, seed_at, offset_at, thread, position):
    recorded = seed_at != 0
    seed += tl.load(seed_at.to(tl.pointer_type(tl.int64)), mask=recorded, other=0)
    offset += tl.load(offset_at.to(tl.pointer_type(tl.int64)), mask=recorded, other=0)
    counter = position.to(tl.uint64) + (offset.to(tl.uint64, bitcast=True) >> 2)
    low, high, thread = counter.to(tl.uint32), (counter >> 32).to(tl.uint32), thread.to(tl.uint32)
    return tl.philox(seed, low, high, thread, thread * 0)


@triton.jit
def _curand_uniform(word):
    return word.to(tl.float32) * 2.3283064365386963e-10 + 1.1641532182693481e-10


@triton.jit
def _unsigned(place):
    if place.dtype == tl.int32:
        return place.to(tl.uint32)
    else:
        return place.to(tl.uint64)


@triton.jit
def _eager_uniform(seed, offset, seed_at, offset_at, threads, vector, memory, logical):
    memory, logical = _unsigned(memory), _unsigned(logical)
    vector, threads = vector.to(memory.dtype), threads.to(memory.dtype)
    single = vector == 1
    chunk = tl.where(single, logical, memory // vector)
    turn = chunk // threads
    thread = chunk - turn * threads
    lane = tl.where(single, turn & 3, memory % vector)
    position = tl.where(single, turn >> 2, turn * tl.where(vector > 4, 2, 1).to(memory.dtype) + (lane >> 2))
    a, b, c, d = _eager_words(seed, offset, seed_at, offset_at, thread, position)
    lane = lane & 3
    return _curand_uniform(tl.where(lane < 2, tl.where(lane == 0, a, b), tl.where(lane == 2, c, d)))


@triton.jit
def _eager_uniform_by_four(seed, offset, seed_at, offset_at, threads, vector, memory, RANK: tl.constexpr):
    if RANK == 1:
        fours = tl.reshape(memory, [memory.shape[0] // 4, 4])
    else:
        fours = tl.reshape(memory, [memory.shape[0], memory.shape[1] // 4, 4])
    first = _unsigned(tl.min(fours, RANK))
    vector, threads = vector.to(first.dtype), threads.to(first.dtype)
    chunk = first // vector
    turn = chunk // threads
    position = turn * (vector // 4) + (first % vector) // 4
    a, b, c, d = _eager_words(seed, offset, seed_at, offset_at, chunk - turn * threads, position)
    words = tl.join(tl.join(a, c), tl.join(b, d))
    return _curand_uniform(tl.reshape(words, memory.shape))
"""
"""``_eager_uniform`` and its parts; its parameters are ``lower.host.draws.FIELDS`` and two places of an element.

``memory`` counts the elements in the order of memory, ``logical`` in row-major order. Threads take turns: thread
``t`` of ``T`` has the vectors ``t``, ``t + T`` and so on. For each vector it calls Philox once, or twice for eight
elements; of vectors of two elements, two numbers stay unused. Without vectors, a thread calls Philox once for four
elements, which are ``T`` elements apart. ``_eager_uniform_by_four`` returns the numbers of a tile of 1 or 2 axes in
which each four points are neighbours in memory, in a vector of 4 or 8 elements.
"""
