"""Check the invariants of the loop-level IR, after a kernel is built and again after loop transformations."""

from __future__ import annotations

from collections.abc import Iterator

from fxstack_inductor.errors import VerificationError
from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import Expr, Var
from fxstack_inductor.ir.kernel import (
    CENTRED,
    Compute,
    Kernel,
    Load,
    Reduce,
    Scan,
    expressions,
    index_operands,
    operands,
)
from fxstack_inductor.ir.printer import show_kernel

REDUCTIONS = frozenset({"sum", "dot", "prod", "max", "min", "any", "all", "argmax", "argmin", *CENTRED})


SCANS = frozenset({"sum", "prod", "max", "min", "argmax", "argmin", "logaddexp", "combine"})
SCATTERS = frozenset({"", "set", "add", "mul", "max", "min"})


def verify(kernel: Kernel, after: str) -> Kernel:
    """Return ``kernel`` if it is well formed.

    Raises:
        VerificationError: a rule is broken. The text has the pass before (``after``), the value, the rule and
            the kernel as text.
    """
    for problem in problems(kernel):
        raise VerificationError(f"after {after}: {problem}\n{show_kernel(kernel)}")
    return kernel


def problems(kernel: Kernel) -> Iterator[str]:
    """Yield a sentence for each broken rule, for example ``v3 uses a value that comes after it``."""
    loops = {loop.var for loop in (*kernel.outer, *kernel.inner)}
    buffers = {ref.name for ref in kernel.buffers}
    for position, value in enumerate(kernel.values):
        name = f"v{position}"
        if any(k >= position for k in operands(value)):
            yield f"{name} uses a value that comes after it"
        if isinstance(value, Load) and value.buffer not in buffers:
            yield f"{name} loads from {value.buffer}, which is no buffer of the kernel"
        if isinstance(value, (Reduce, Scan)):
            yield from _reduction(kernel, name, value)
        if isinstance(value, Compute) and not value.args:
            yield f"{name} computes {value.op} of nothing"
        for expr in expressions(value):
            yield from _variables(name, expr, loops)
    for store in kernel.stores:
        if store.buffer not in buffers:
            yield f"a store goes to {store.buffer}, which is no buffer of the kernel"
        if store.op not in SCATTERS:
            yield f"the store to {store.buffer} has an unknown operation, {store.op}"
        if not 0 <= store.value < len(kernel.values):
            yield f"the store to {store.buffer} has no value v{store.value}"
        if any(k >= len(kernel.values) for k in index_operands(store.index)):
            yield f"the address of the store to {store.buffer} uses a value that does not exist"
        yield from _variables(f"the store to {store.buffer}", store.index, loops)


def _reduction(kernel: Kernel, name: str, value: Reduce | Scan) -> Iterator[str]:
    """Yield broken rules of a reduction or scan: its operation, and its number of operands."""
    if value.op not in (REDUCTIONS if isinstance(value, Reduce) else SCANS):
        yield f"{name} is an unknown reduction, {value.op}"
    if not kernel.inner:
        yield f"{name} reduces, but there are no inner loops"
    combine = value.combine if isinstance(value, Scan) else None
    pairs = value.op.startswith("arg") or value.op in CENTRED
    count = combine.count if combine is not None else 2 if pairs else 1
    if len(value.args) != count:
        yield f"{name}: {value.op} of {len(value.args)} values"


def _variables(name: str, expr: Expr, loops: set[Var]) -> Iterator[str]:
    """Yield a sentence for each loop variable in ``expr`` that no loop of the kernel binds."""
    for var in sorted(expr.variables, key=lambda v: v.name):
        if var.kind is VarKind.LOOP and var not in loops:
            yield f"{name} uses the loop variable {var.name}, which no loop of the kernel binds"
