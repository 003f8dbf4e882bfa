"""Decide which loops threads share: the loops for which no two threads provably store to one cache line.

Two threads that store to one line take the line from each other, which costs more than a second thread gains.
Also, whatever a C compiler does around a store (whole vectors, moved stores) stays within the lines of one
thread.

The proof treats the index of a store as a number of mixed radix. Each loop is a *digit*: it adds its
coefficient times its position. A shared loop is two digits, the position in a block and the block. If every
digit from the smallest shared one up is a multiple of a line, and larger than all smaller digits together,
then a line belongs to one value of the shared digits. Offsets count from the place where all digits are 0:
storage starts at a line, except for views that a program writes to, where only the two ends of a thread's
share can lie in a line of another thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd

from fxstack_inductor.codegen.c.ranges import Range
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import ONE, ZERO, Expr, Var, integer, of_atom, product
from fxstack_inductor.ir.kernel import Check, Compute, Kernel, Loop, Reduce, Scan, Store

LINE = 64
"""Bytes of a cache line."""
VECTOR_FUNCTIONS = frozenset(
    {
        *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "pow", "hypot"),
        *("sin", "cos", "tan", "sinh", "cosh", "tanh", "erf", "erfc", "atan2"),
    }
)
"""Functions whose vector versions (``prelude.h``) differ from the scalar versions in the last bits."""
ENOUGH_BLOCKS = 64
"""The number of blocks that is enough for any number of threads."""
UNIT = Var("unit", VarKind.SIZE)
"""The size of a block that is known only when the kernel is called."""
ASSUMED_SIZE = 1009
"""The value assumed for an unknown size, to guess the order of digits; the proof then checks the order."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """``loops`` in opening order; threads share the first ``shared`` of them, in blocks of ``unit`` points.

    ``unit`` and ``conditions`` are C text; where a condition is false, one thread runs the loops.
    """

    loops: tuple[Range, ...]
    shared: int
    unit: str
    conditions: tuple[str, ...]
    blocks: int | None
    """The number of blocks, or None if unknown."""

    @property
    def plenty(self) -> bool:
        """Whether there are certainly enough blocks for any number of threads, without conditions."""
        return not self.conditions and self.blocks is not None and self.blocks >= ENOUGH_BLOCKS

    @property
    def rank(self) -> tuple[bool, float]:
        """The order of preference: no conditions first, then more blocks."""
        return not self.conditions, float("inf") if self.blocks is None else self.blocks


@dataclass(frozen=True, slots=True)
class _Digit:
    """One loop in the index of a store, as a digit of a number of mixed radix."""

    coefficient: Expr
    """The loop's coefficient in the index, in elements."""
    most: Expr | None
    """The largest number that the digit adds; None if unknown."""
    shared: bool = False
    """Whether threads differ in this digit."""
    aligned: bool = False
    """Whether the coefficient is known to be a multiple of a line, whatever its expression is."""


def share(
    kernel: Kernel, loops: Sequence[Range], stores: Sequence[Store], around: Sequence[Loop] = ()
) -> Sharing | None:
    """Return how threads share ``loops``, which may run in any order; None if threads cannot share them.

    ``stores`` are the stores in the loops. ``around`` are loops that contain the whole parallel region. Each
    thread runs all other loops completely.
    """
    moving = [loop for loop in (*kernel.outer, *kernel.inner) if loop not in around]
    best: Sharing | None = None
    for order, shared in _candidates(loops):
        sharing = _proven(replace(kernel, outer=(), inner=tuple(moving)), stores, order, shared)
        if sharing is None or (sharing.blocks is not None and sharing.blocks < 2):
            continue
        if sharing.plenty:
            return sharing
        if best is None or sharing.rank > best.rank:
            best = sharing
    return best


def _candidates(loops: Sequence[Range]) -> Iterator[tuple[tuple[Range, ...], int]]:
    """Yield (order of the loops, number of leading loops to share): as many loops as possible first.

    At the end, each single loop is moved to the front, to be shared alone.
    """
    for shared in range(len(loops), 0, -1):
        yield tuple(loops), shared
    for k in range(1, len(loops)):
        yield (loops[k], *loops[:k], *loops[k + 1 :]), 1


def _proven(kernel: Kernel, stores: Sequence[Store], order: tuple[Range, ...], count: int) -> Sharing | None:
    """Return this order and ``count`` of shared loops as a ``Sharing`` if the proof succeeds, else None."""
    shared = order[:count]
    lines = {ref.name: max(1, LINE // ref.dtype.itemsize) for ref in kernel.buffers}
    steps: list[list[Expr]] = []
    for store in stores:
        coefficients = _coefficients(store, shared)
        if coefficients is None:
            return None
        steps.append(coefficients)
    tail = _tail(shared, steps)
    blocks = [
        _block(step[-1] * shared[-1].stride, lines[store.buffer])
        for step, store in zip(steps, stores, strict=True)
    ]
    if count == len(order) and _calls_functions(kernel):
        # A vector may hold as many points as fill a line of the narrowest buffer. The rest of a share must
        # be the rest of the whole loop, because results would otherwise depend on the number of threads.
        blocks.append(max(lines.values()))
    unit, text = _unit(blocks)
    proofs = [_ends(shared, tail, unit, text)]
    for store in stores:
        digits = _digits(kernel, store.index, shared, tail, unit)
        proofs.append(None if digits is None else _separate(digits, lines[store.buffer]))
    conditions: set[str] = set()
    for proof in proofs:
        if proof is None:
            return None
        conditions |= proof
    return Sharing(order, count, text, tuple(sorted(conditions)), _count(shared, tail, unit))


def _calls_functions(kernel: Kernel) -> bool:
    """Whether the innermost loop calls vector functions for several points at once."""
    if any(isinstance(v, (Reduce, Scan)) for v in kernel.values):
        return False  # threads do not share the innermost loop
    return any(isinstance(v, Compute) and v.op in VECTOR_FUNCTIONS for v in kernel.values)


def _coefficients(store: Store, loops: Sequence[Range]) -> list[Expr] | None:
    """Return the coefficients of ``loops`` in the index of ``store``; None if they do not separate points."""
    coefficients: list[Expr] = []
    for loop in loops:
        step = store.index.coefficient(loop.loop.var)
        if step is None or (step == 0 and loop.loop.extent != 1):
            return None
        coefficients.append(step)
    return coefficients


def _tail(shared: Sequence[Range], steps: Sequence[Sequence[Expr]]) -> int:
    """Return the position in ``shared`` of the first trailing loop: from there on the loops act as one loop."""
    start = len(shared) - 1
    while start and shared[start].stride == shared[start - 1].stride == ONE:
        size = shared[start].loop.extent
        if any(step[start - 1] != step[start] * size for step in steps):
            break
        start -= 1
    return start


def _block(step: Expr, line: int) -> int | str:
    """Return how many points, ``step`` elements apart, fill whole lines: a power of two, or C that computes it."""
    least = line // gcd(line, _divisor(step))
    return least if least == 1 or step.as_int() is not None else f"line_block({c_index(step)}, {line})"


def _unit(blocks: Sequence[int | str]) -> tuple[Expr, str]:
    """Return the size of a block that fills whole lines in all stores, as expression and as C."""
    largest = max((block for block in blocks if isinstance(block, int)), default=1)
    texts = sorted({block for block in blocks if isinstance(block, str)})
    if not texts:
        return integer(largest), str(largest)
    text = str(largest)
    for other in texts:
        text = other if text == "1" else f"max_int64_t({text}, {other})"
    return of_atom(UNIT), text


def _divisor(expr: Expr) -> int:
    """Return a number that divides ``expr`` for all sizes."""
    return gcd(*(coefficient for _, coefficient in expr.terms))


def _ends(shared: Sequence[Range], tail: int, unit: Expr, text: str) -> set[str] | None:
    """Return the conditions under which each block has a single position of the loops before ``tail``.

    The shared loops from ``tail`` on act as one loop. Blocks of ``unit`` points must divide this loop without a rest.
    Return None if there is no proof. ``text`` is ``unit`` as C.
    """
    if not tail or unit == 1:
        return set()
    points = product(loop.loop.extent for loop in shared[tail:])
    block = unit.as_int()
    if shared[-1].stride != ONE or (points.as_int() is not None and block is None):
        return None
    if block is not None and _divisor(points) % block == 0:
        return set()
    return None if points.as_int() is not None else {f"({c_index(points)}) % ({text}) == 0"}


def _count(shared: Sequence[Range], tail: int, unit: Expr) -> int | None:
    """Return the number of blocks that threads share; None if it is unknown."""
    outer = product(loop.loop.extent for loop in shared[:tail]).as_int()
    inner = product(loop.loop.extent for loop in shared[tail:]).as_int()
    block = (unit * shared[-1].stride).as_int()
    if outer is None or inner is None or block is None:
        return None
    return outer * -(-inner // block)


def _digits(
    kernel: Kernel, index: Expr, shared: Sequence[Range], tail: int, unit: Expr
) -> list[_Digit] | None:
    """Return the digits of a store's ``index``; None if the index is not a sum of digits."""
    digits: list[_Digit] = []
    for loop in shared[:tail]:
        extent = loop.loop.extent
        digits += _halves(_step(index, loop), loop.stride, extent, aligned=False)
    points, last = product(loop.loop.extent for loop in shared[tail:]), shared[-1]
    digits += _halves(_step(index, last), unit * last.stride, points, aligned=True)
    shared_variables = {loop.loop.var for loop in shared}
    removed = dict.fromkeys(shared_variables, ZERO)
    for whole in (*kernel.outer, *kernel.inner):
        step = index.coefficient(whole.var)
        if whole.var not in shared_variables and step is not None:
            digits.append(_Digit(step, step * (whole.extent - 1)))
            removed[whole.var] = ZERO
    rest = _opaque(kernel, index.subs(removed))
    return None if rest is None else [*digits, *rest]


def _step(index: Expr, loop: Range) -> Expr:
    """Return the coefficient of a shared loop in an index."""
    step = index.coefficient(loop.loop.var)
    assert step is not None  # _coefficients has checked
    return step


def _halves(step: Expr, block: Expr, points: Expr, *, aligned: bool) -> list[_Digit]:
    """Return the two digits of a shared loop: the position in its block, and the block."""
    return [
        _Digit(step, step * (block - 1)),
        _Digit(step * block, step * (points - block), shared=True, aligned=aligned),
    ]


def _opaque(kernel: Kernel, rest: Expr) -> list[_Digit] | None:
    """Return the digits of the rest of an index: quotients and remainders of loops, and loaded indices."""
    digits: list[_Digit] = []
    for monomial, coefficient in rest.terms:
        term = Expr(((monomial, coefficient),))
        moving = [v for v in term.variables if v.kind in {VarKind.LOOP, VarKind.VALUE}]
        if not moving:
            continue  # the same for all points
        (step, most) = _moved(kernel, term, moving)
        if step is None:
            return None
        digits.append(_Digit(step, most))
    return digits


def _moved(kernel: Kernel, term: Expr, moving: Sequence[Var]) -> tuple[Expr | None, Expr | None]:
    """Return (coefficient, largest added number) of a term that changes; None for what is unknown."""
    (var,), step = moving[:1], term.coefficient(moving[0])
    if len(moving) == 1 and var.kind is VarKind.VALUE and step is not None:
        value = kernel.values[int(var.name[1:])]
        return step, step * (value.size - 1) if isinstance(value, Check) else None
    low, high = term.bounds()
    if low is None or low < 0 or high is None:
        return None, None
    return integer(term.terms[0][1]), integer(high)


def _separate(digits: Sequence[_Digit], line: int) -> set[str] | None:
    """Return conditions under which stores at different values of the shared digits touch different cache lines.

    ``line`` is the number of elements of a cache line. The conditions are C text; an empty set means that the proof
    needs no condition. None means that there is no proof.
    """
    conditions: set[str] = set()
    below: Expr | None = ZERO
    seen = False
    moving = [digit for digit in digits if digit.most is None or digit.most != 0]
    for digit in sorted(moving, key=lambda d: (_usual(d.coefficient), d.shared)):
        seen = seen or digit.shared
        if below is None or not _at_least(digit.coefficient, below + 1 if seen else ZERO):
            return None
        if seen and not digit.aligned and _divisor(digit.coefficient) % line:
            if digit.coefficient.as_int() is not None:
                return None
            conditions.add(f"({c_index(digit.coefficient)}) % {line} == 0")
        below = None if digit.most is None else below + digit.most
    return conditions


def _at_least(value: Expr, least: Expr) -> bool:
    """Whether ``value`` is certainly not less than ``least``."""
    low = (value - least).bounds()[0]
    return low is not None and low >= 0


def _usual(expr: Expr) -> int:
    """Return a guess at a coefficient, to sort digits: unknown sizes are large, unknown blocks small."""
    small = {UNIT.name: 16, "step": 1}
    return expr.evaluate({v.name: small.get(v.name, ASSUMED_SIZE) for v in expr.variables})
