"""Let a loop over tiles compute a reduction in the same pass as the reduction that it depends on.

A softmax sums ``exp(x - m)``, where ``m`` is the maximum of ``x``; a variance sums ``(x - c) ** 2``, where ``c`` is the
mean. Written so, each takes two passes over ``x``. One pass is enough: each lane of a tile keeps the sum for a centre
of its own, and the sums are moved to the common centre when this is known.

- ``expsum``: the centre of a lane is its maximum so far (Milakov and Gimelshein, "Online normalizer calculation for
  softmax", 2018).
- ``squares``: the centre of a lane is its first element. The sum of the lane's differences from it is kept, too. The
  element's own square is part of the result, so that the squares that cancel are at most as many times larger than the
  result as the lane has elements.
- ``differences``, the sum of ``x - c``: the centre of a lane is its first element.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fxstack_inductor.ir.analysis import Analysis, analyse
from fxstack_inductor.ir.kernel import CENTRED, Compute, Kernel, Reduce, Value


def in_one_pass(kernel: Kernel) -> Kernel:
    """Return ``kernel`` with centred reductions in place of sums that need a pass of their own.

    One replacement may make the centre of the next sum available earlier, so each sum sees those before it.
    """
    for position, value in enumerate(kernel.values):
        if isinstance(value, Reduce) and value.op == "sum":
            found = _centred(analyse(kernel), position)
            if found is not None:
                values = (*kernel.values[:position], found, *kernel.values[position + 1 :])
                kernel = replace(kernel, values=values)
    return kernel


def partner(kernel: Kernel, centred: Reduce) -> int | None:
    """Return the position of the reduction of the same value from which the centre is computed; None: there is none."""
    value = centred.args[0]
    wanted = Reduce(CENTRED[centred.op], (value,), kernel.values[value].dtype)
    return kernel.values.index(wanted) if wanted in kernel.values else None


def _centred(facts: Analysis, position: int) -> Reduce | None:
    """Return the centred reduction for the sum at ``position``; None if the sum is no such sum, or needs no pass."""
    kernel = facts.kernel
    total = kernel.reduction(position)
    for op, value, centre in _differences(kernel.values, total.args[0]):
        centred = Reduce(op, (value, centre), total.dtype)
        floats = {total.dtype, kernel.values[value].dtype, kernel.values[centre].dtype}
        if len(floats) != 1 or not total.dtype.is_floating_point:
            continue
        if not facts.inner[value] or facts.inner[centre] or partner(kernel, centred) is None:
            continue
        # The pass of the value must make the centre available, and not an earlier pass: then nothing is saved.
        if facts.stage[centre] == facts.stage[value] + 1:
            return centred
    return None


def _differences(values: tuple[Value, ...], term: int) -> Iterator[tuple[str, int, int]]:
    """Yield (operation, value, centre) if ``term`` is one of those that ``CENTRED`` describes."""
    match values[term]:
        case Compute("sub", (value, centre)):
            yield "differences", value, centre
            return
        case Compute("exp", (inner,)):
            op = "expsum"
        case Compute("mul", (inner, other)) if inner == other:
            op = "squares"
        case _:
            return
    match values[inner]:
        case Compute("sub", (value, centre)):
            yield op, value, centre
