"""Choose the values of a pass over the inner loops that stack arrays keep for a later pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

import torch

from fxstack_inductor.codegen.c.text import STACK
from fxstack_inductor.ir.analysis import Analysis
from fxstack_inductor.ir.kernel import Check, Compute, Constant, IndexValue, Scan, Store
from fxstack_inductor.ir.scalar_ops import EXPENSIVE, HALF_ROUNDINGS

WORTH_SAVING = 8
"""The cost, in simple operations, from which on a value is kept: a store and a load, with room for the guess."""
SLOW = frozenset({"div", "sqrt", "rsqrt", "reciprocal", "truncdiv"})


def first_passes(facts: Analysis) -> dict[int, int]:
    """Return the first pass that computes a value, by position."""
    first: dict[int, int] = {}
    for stage in range(facts.last_stage + 1):
        for k in facts.needed(facts.pass_roots(stage)):
            first.setdefault(k, stage)
    return first


def saved_values(
    facts: Analysis, size: int, bytes_left: int = STACK, known: Collection[int] = ()
) -> list[int]:
    """Return the values that later passes read instead of computing them again, for ``size`` points.

    These are values that a later pass takes in as they are, if they cost more than an array in between. The values
    ``known`` need no array.
    """
    saved = list(known)
    for k in sorted(set(_taken(facts)).difference(known)):
        needed = facts.kernel.values[k].dtype.itemsize * size
        if needed <= bytes_left and _cost(facts, k, saved) >= WORTH_SAVING:
            saved.append(k)
            bytes_left -= needed
    return saved[len(known) :]


def stored_values(facts: Analysis) -> dict[int, Store]:
    """Return the values that later passes read from where an earlier pass stores them: the store, by position."""
    first, found = first_passes(facts), dict[int, Store]()
    buffers = Counter(store.buffer for store in facts.kernel.stores)
    dtypes = {ref.name: ref.dtype for ref in facts.kernel.buffers}
    for k in sorted(set(_taken(facts))):
        value = facts.kernel.values[k]
        for store in facts.stores(first[k], inner=True):
            dtype, whole = dtypes[store.buffer], {k}
            if isinstance(value, Compute) and HALF_ROUNDINGS.get(value.op) is dtype:
                whole = {k, *value.args}  # the store rounds as the value does
            elif dtype is not value.dtype:
                continue
            alone = buffers[store.buffer] == 1 and store.buffer not in facts.kernel.read
            if store.value in whole and alone and not store.op:
                found[k] = store
    return {k: store for k, store in found.items() if _cost(facts, k, ()) >= WORTH_SAVING}


def _taken(facts: Analysis) -> Iterator[int]:
    """Yield the inner values of earlier passes that later passes take in."""
    first = first_passes(facts)
    for stage in range(1, facts.last_stage + 1):
        roots = facts.pass_roots(stage)
        found = facts.needed(roots, stop=facts.outer.union(k for k, n in first.items() if n < stage))
        yield from (k for k in found if first[k] < stage and k not in facts.outer and _holds(facts, k))


def _holds(facts: Analysis, k: int) -> bool:
    """Whether an array may hold the value: vectors of booleans from memory are slow."""
    value = facts.kernel.values[k]
    return not isinstance(value, (Constant, IndexValue)) and value.dtype is not torch.bool


def _cost(facts: Analysis, k: int, saved: Collection[int]) -> int:
    """Return the cost of a value whose operands are computed again, but for the values ``saved``."""
    needed = facts.needed([k], stop=facts.outer.union(saved))
    return sum(_weight(facts, p) for p in needed if p not in facts.outer and p not in saved)


def _weight(facts: Analysis, k: int) -> int:
    """Return the cost of one value, in simple operations."""
    match facts.kernel.values[k]:
        case Scan():
            return 4 * WORTH_SAVING
        case Check():
            return WORTH_SAVING
        case Compute(op, dtype=dtype):
            if op in EXPENSIVE:
                return 2 * WORTH_SAVING
            if op not in SLOW and op not in HALF_ROUNDINGS:
                return 1
            instructions = 1 + (op == "rsqrt")  # a root and a division
            return WORTH_SAVING // 2 * instructions * (1 + (dtype is torch.float64))
        case _:
            return 1
