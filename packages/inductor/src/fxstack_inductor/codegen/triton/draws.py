"""Triton text of the random numbers of dropout: the numbers of eager's CUDA kernel (``lower.host.draws``).

Philox4x32-10 is Triton's own function. Its counter is (position in the stream, two words; number of the thread, two
words), as in cuRAND, and cuRAND makes a number between 0 and 1 from a word by ``word * 2**-32 + 2**-33``.
"""

from __future__ import annotations

UNIFORM = "_eager_uniform"
"""The function of ``PRELUDE`` that returns the number of each element."""

PRELUDE = """

@triton.jit
def _eager_uniform(seed, offset, seed_at, offset_at, threads, vector, memory, logical):
    recorded = seed_at != 0
    seed += tl.load(seed_at.to(tl.pointer_type(tl.int64)), mask=recorded, other=0)
    offset += tl.load(offset_at.to(tl.pointer_type(tl.int64)), mask=recorded, other=0)
    if memory.dtype == tl.int32:
        kind: tl.constexpr = tl.uint32
    else:
        kind: tl.constexpr = tl.uint64
    vector, threads = vector.to(kind), threads.to(kind)
    single = vector == 1
    chunk = tl.where(single, logical.to(kind), memory.to(kind) // vector)
    step = chunk // threads
    thread = chunk - step * threads
    lane = tl.where(single, step & 3, memory.to(kind) % vector)
    calls = tl.where(vector > 4, 2, 1).to(kind)
    counter = tl.where(single, step >> 2, step * calls + (lane >> 2)).to(tl.uint64)
    counter += offset.to(tl.uint64, bitcast=True) >> 2
    low, high, thread = counter.to(tl.uint32), (counter >> 32).to(tl.uint32), thread.to(tl.uint32)
    a, b, c, d = tl.philox(seed, low, high, thread, thread * 0)
    lane = lane & 3
    word = tl.where(lane < 2, tl.where(lane == 0, a, b), tl.where(lane == 2, c, d))
    return word.to(tl.float32) * 2.3283064365386963e-10 + 1.1641532182693481e-10
"""
"""The function of ``UNIFORM``; its parameters are the arguments ``lower.host.draws.FIELDS`` and two places of an element.

``memory`` counts the elements in the order of memory, ``logical`` in row-major order. Threads take turns: thread
``t`` of ``T`` has the vectors ``t``, ``t + T`` and so on. For each vector it calls Philox once, or twice for eight
elements; of vectors of two elements, two numbers stay unused. Without vectors, a thread calls Philox once for four
elements, which are ``T`` elements apart.
"""
