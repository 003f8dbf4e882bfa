"""Write expressions and values of the loop IR as C text."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from fxstack_inductor.codegen.c import ops as c_ops
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.analysis import analyse
from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.exact_halves import exact_values
from fxstack_inductor.ir.expr import ZERO, Expr, Mod, Monomial, Var, integer, of_atom
from fxstack_inductor.ir.kernel import (
    Check,
    Compute,
    Constant,
    IndexValue,
    Kernel,
    Load,
    Loop,
    Reduce,
    Scan,
    Store,
    Value,
    index_operands,
)
from fxstack_inductor.ir.scalar_ops import HALF_ROUNDINGS

UNROLLED = 16
"""A loop of at most this many points may become part of a vector of the surrounding loop."""
STACK = 1 << 18
"""The most bytes of arrays on the stack: half of a second-level cache, and of the smallest stack of a thread."""

COMBINED = {"max": "maximum", "min": "minimum"}
"""The scalar operations of stores with these operations."""

EXTREMES = {"gt": "maximum", "lt": "minimum"}
"""The operation that chooses the first of two numbers where the comparison holds, or where the number is NaN."""


class Names:
    """The C names of one kernel's parts: ``a0`` for a buffer, ``v12`` for a value."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.buffers = {ref.name: f"a{k}" for k, ref in enumerate(kernel.buffers)}
        self.dtypes: Mapping[str, torch.dtype] = {ref.name: ref.dtype for ref in kernel.buffers}
        self.empty = frozenset(ref.name for ref in kernel.buffers if ref.numel.as_int() == 0)
        self.staged: dict[int, str] = {}
        """The rows of arrays with elements that were copied to the stack before the loop, by load."""
        self.staged_at = "j"
        """The variable of the position in these rows: ``j``, or a loop that the rows cover completely."""
        self.staged_first = ""
        """The C variable with the point of their first element; empty if that is the first point of the loop."""
        self.floats: dict[int, str] = {}
        """The arrays over ``j`` with elements that were converted to floats, or copied, before the loop, by load."""
        self.skipped: set[int] = set()
        """The values that a loop does not need, because one before it has read what they are the places of."""
        self.results: dict[Store, str] = {}
        """The arrays over ``j`` in which stores leave floats for conversion after the loop, or what is copied then."""
        self.targets: dict[Store, str] = {}
        """The rows, over ``j``, of stack arrays that stores, or conversions of their results, write instead of their buffers."""
        self.reread: set[Store] = set()
        """The stores whose results a later pass reads again: they stay in the caches."""
        self.rows: Mapping[int, str] = {}
        """The arrays over ``j`` of values that are finished before the loop."""
        self.finished: set[int] = set()
        """The values that are read from arrays: their operands have no names any more."""
        self.apart: list[str] = []
        """Declarations, at the function's start, of pointers and steps that the compiler must not know."""
        self._backward: dict[Expr, str] = {}
        """The variables with the steps of accesses that go backward, by index."""
        self.narrow = {
            k: v.size.as_int() or 0
            for k, v in enumerate(kernel.values)
            if isinstance(v, Check) and v.size.as_int()
        }
        """The sizes that checked places are below, by position."""
        self.conditional: set[int] = set()
        """The positions of the written values that read under a condition."""

    def element(self, buffer: str, index: Expr) -> str:
        """Return the C text of an element of a buffer, for example ``a0[i0]``."""
        return f"{self.buffers[buffer]}[{self._index(self._narrowed(buffer, self._bounded(index), index_operands(index)))}]"

    def _bounded(self, index: Expr) -> Expr:
        """Return the index with the bounds of checked places in remainders: bounds may make a division unnecessary."""
        checked = {
            Var(f"v{k}", VarKind.VALUE): self.narrow[k] for k in index_operands(index) if k in self.narrow
        }
        inside = {
            var: of_atom(Var(var.name, VarKind.LOOP, integer(size)))
            for var, size in checked.items()
            if index.coefficient(var) is None
        }
        return index.subs(inside) if inside else index

    def _narrowed(self, buffer: str, bounded: Expr, places: tuple[int, ...]) -> Expr:
        """Return the index of an element of at most 32 bits with small places, remainders and loops in 32 bits.

        GCC makes vectors of reads at places that are wider than the elements for few processors only, and of sums of 32 and 64
        bits for none. What C adds in 32 bits, these and the constant, stays below 2**31.
        """
        if self.dtypes[buffer].itemsize > 4:
            return bounded
        small = ZERO
        room = 2**31 - abs(dict(bounded.terms).get((), 0))
        loops = {loop.var: loop.extent.as_int() for loop in self._vector_loops(places)}
        for monomial, times in bounded.terms:
            term = Expr(((monomial, times),))
            size = self._size(monomial, loops)
            if size is not None and size * abs(times) < room:
                room -= size * abs(times)
                term = of_atom(Var(f"(int32_t){c_index(of_atom(monomial[0]))}", VarKind.VALUE)) * times
            small += term
        return small

    def _size(self, monomial: Monomial, loops: Mapping[Var, int | None]) -> int | None:
        """Return what a checked place, a remainder or one of ``loops`` is below; None for other products."""
        match monomial:
            case (Var(name, VarKind.VALUE),):
                return self.narrow.get(int(name[1:]))
            case (Var() as var,):
                return loops.get(var)
            case (Mod(_, den),):
                return den.as_int()
        return None

    def _vector_loops(self, places: tuple[int, ...]) -> list[Loop]:
        """Return the loops that may be vector loops, and along which one of ``places`` differs; all places are small."""
        last = [loops[-1] for loops in (self.kernel.inner, self.kernel.outer) if loops]
        if not places or not all(k in self.narrow for k in places):
            return []
        facts = analyse(self.kernel)
        return [loop for loop in last if not facts.varying(loop).isdisjoint(places)]

    def _index(self, index: Expr) -> str:
        """Return an index as C text.

        GCC makes no vectors of accesses that go backward with gaps, if it knows their step, or that two have one step.
        """
        for loops in filter(None, (self.kernel.outer, self.kernel.inner)):
            var, step = loops[-1].var, index.coefficient(loops[-1].var)
            back = None if step is None else step.as_int()
            if back is not None and back < -1:
                name = self._backward.get(index)
                if name is None:
                    name = self._backward[index] = f"back{len(self.apart)}"
                    self.apart.append(f'  int64_t {name} = {back}; __asm__("" : "+r"({name}));')
                return f"{c_index(index.subs({var: ZERO}))} + {var.name} * {name}"
        return c_index(index)

    def store(self, store: Store) -> str:
        """Return the C statement of a store, for example ``a1[i0] = v3;``."""
        row, dtype = self.targets.get(store), self.dtypes[store.buffer]
        target = self.element(store.buffer, store.index) if row is None else f"{row}[j]"
        position = self._unrounded(store)
        value = self.operand(position)
        if store in self.results:
            return f"{self.results[store]}[j] = {value};"
        if store in self.kernel.copied:
            return f"{target} = {self._copy(store.value, dtype)};"
        if store.op not in {"", "set"}:
            kind = self.kernel.values[store.value].dtype
            value = c_ops.emit(
                COMBINED.get(store.op, store.op), [c_ops.load(target, dtype), value], kind, [kind, kind]
            )
        elif dtype is torch.bfloat16 and dtype in exact_values(self.kernel)[position]:
            return f"{target} = bf16_bits({value});"
        return f"{target} = {c_ops.store(value, dtype)};"

    def _unrounded(self, store: Store) -> int:
        """Return the position of the value to store: a rounding to the stored dtype before the store is omitted."""
        value = self.kernel.values[store.value]
        if not isinstance(value, Compute) or store.op not in {"", "set"} or store.value in self.finished:
            return store.value
        twice = HALF_ROUNDINGS.get(value.op) is self.dtypes[store.buffer]
        return value.args[0] if twice else store.value

    def _copy(self, position: int, dtype: torch.dtype) -> str:
        """Return the bits of a half-precision load that a store copies without conversion."""
        value = self.kernel.values[position]
        assert isinstance(value, Load)
        element = self._place(position, value)
        if value.mask is None:
            return element
        self.conditional.add(position)
        other = "0" if value.other is None else self.operand(value.other)
        return f"({self.operand(value.mask)} ? {element} : {c_ops.store(other, dtype)})"

    def operand(self, position: int) -> str:
        """Return a value's text at its use; constants are literals."""
        value = self.kernel.values[position]
        return c_ops.literal(value.text, value.dtype) if isinstance(value, Constant) else f"v{position}"

    def declare(self, position: int) -> str:
        """Return ``const T v12 = ...;``; reductions are not allowed."""
        value = self.kernel.values[position]
        return f"const {c_ops.REGISTER[value.dtype]} v{position} = {self.expression(position)};"

    def turn(
        self, position: int, start: str, step: Expr, shape: tuple[int, int], sizes: tuple[str, str]
    ) -> list[str]:
        """Return C that copies ``sizes`` elements of a load to the stack transposed; row ``i`` is read from now on.

        ``start`` is the offset of the first element, ``step`` that of the next element of a row. ``shape``: the size
        of the array.
        """
        load = self.kernel.values[position]
        assert isinstance(load, Load)
        dtype = self.dtypes[load.buffer]
        word, (rows, columns) = f"uint{8 * dtype.itemsize}_t", shape
        self.staged[position] = f"turned{position}[i]"
        source = f"(const {word}*)({self.buffers[load.buffer]} + {start}), {c_index(step)}"
        target = f"({word}*)turned{position}, {columns}, {', '.join(sizes)}"
        return [
            f"{c_ops.STORAGE[dtype]} turned{position}[{rows}][{columns}] __attribute__((aligned(64)));",
            f"transpose_{word}({source}, {target});",
        ]

    def declarations(self, position: int) -> list[str]:
        """Return the declaration of a value; constants, and values that the loop does not need, have none."""
        constant = isinstance(self.kernel.values[position], Constant)
        return [] if constant or position in self.skipped else [self.declare(position)]

    def expression(self, position: int) -> str:
        """Return the C expression of a value; reductions and scans have none."""
        value = self.kernel.values[position]
        if isinstance(value, Load) and value.mask is not None:
            self.conditional.add(position)
        match value:
            case Constant(text, dtype):
                return c_ops.literal(text, dtype)
            case IndexValue(expr, dtype):
                return c_ops.cast(f"(int64_t)({c_index(expr)})", torch.int64, dtype)
            case Load(buffer, _, _, mask, other):
                if position in self.floats:
                    return f"{self.floats[position]}[j]"
                if buffer in self.empty:  # the buffer has no address, and the value is unused
                    return "0"
                element = c_ops.load(self._place(position, value), self.dtypes[buffer])
                return element if mask is None else self._masked(mask, element, other)
            case Check(arg, size, _, mask, wraps, done):
                valid = "true" if mask is None else self.operand(mask)
                if done:
                    return self._checked(self.operand(arg), size, valid, wraps=wraps)
                name = "WRAP_INDEX" if wraps else "CHECK_INDEX"
                return f"{name}({self.operand(arg)}, {c_index(size)}, {valid})"
            case Compute(op, args, dtype):
                kinds = [self.kernel.values[k].dtype for k in args]
                if op == "where" and (extreme := self._extreme(*args)):
                    op, args, kinds = extreme, args[1:], kinds[1:]
                return c_ops.emit(op, [self.operand(k) for k in args], dtype, kinds)
            case Reduce() | Scan():
                raise AssertionError("a reduction has no expression")

    def _extreme(self, condition: int, chosen: int, other: int) -> str:
        """Return the operation that a selection writes out (``a > b or a != a ? a : b`` is ``maximum``); empty if none."""
        found = self.kernel.values[condition]
        if not isinstance(found, Compute) or found.op != "bitwise_or":
            return ""
        compared, unequal = (self.kernel.values[k] for k in found.args)
        if unequal != Compute("ne", (chosen, chosen), torch.bool):
            return ""
        names: dict[Value, str] = {
            Compute(op, (chosen, other), torch.bool): name for op, name in EXTREMES.items()
        }
        return names.get(compared, "")

    def _place(self, position: int, load: Load) -> str:
        """Return the text of the element that a load reads: in the copy on the stack (``staged``), or in the buffer.

        A strided conditional load reads the buffer through a pointer of its own (``_apart``).
        """
        if position in self.staged:
            first = f" - {self.staged_first}" if self.staged_first else ""
            return f"{self.staged[position]}[{self.staged_at}{first}]"
        if load.mask is not None and self._may_join(load.index):
            return f"{self._apart(load.buffer)}[{c_index(load.index)}]"
        return self.element(load.buffer, load.index)

    def _may_join(self, index: Expr) -> bool:
        """Whether the C compiler could join several loads like this one, which are strided, into a vector."""
        for loops in filter(None, (self.kernel.outer, self.kernel.inner)):
            step, extent = index.coefficient(loops[-1].var), loops[-1].extent.as_int()
            stride = None if step is None else step.as_int()
            short = extent is not None and extent <= UNROLLED
            if stride is None or abs(stride) > 1 or short:
                return True
        return False

    def _apart(self, buffer: str) -> str:
        """Declare and return a pointer to ``buffer`` that the compiler cannot identify with another pointer.

        GCC (12 at least, where AVX2 or more has masked loads) joins conditional loads of neighbours
        (``c ? x[2 * i + 1] : 0`` beside ``d ? x[2 * i] : 0``) into one vector and loses their order, as if
        each lane read its own place.
        """
        name = f"{self.buffers[buffer]}_{len(self.apart)}"
        kind = c_ops.STORAGE[self.dtypes[buffer]]
        source = self.buffers[buffer]
        self.apart.append(f'  const {kind}* {name} = {source}; __asm__("" : "+r"({name}));')
        return name

    @staticmethod
    def _checked(index: str, size: Expr, valid: str, *, wraps: bool) -> str:
        """Return the C text of an index that is in range where ``valid`` is true."""
        found = f"({index} < 0 ? {index} + {c_index(size)} : {index})" if wraps else index
        return found if valid == "true" else f"({valid} ? {found} : 0)"

    def _masked(self, mask: int, element: str, other: int | None) -> str:
        """Return the C text of a conditional load."""
        default = "0" if other is None else self.operand(other)
        return f"({self.operand(mask)} ? {element} : {default})"


def parameters(kernel: Kernel) -> list[str]:
    """Return the C parameters: buffers, sizes, the error flag of checked kernels, the number of threads."""
    written = kernel.written
    params = [
        f"{'' if ref.name in written else 'const '}{c_ops.STORAGE[ref.dtype]}* restrict a{k}"
        for k, ref in enumerate(kernel.buffers)
    ]
    params += [f"const int64_t {name}" for name in kernel.sizes]
    if kernel.checked:
        params.append("int32_t* error")
    return [*params, "const int64_t threads"]
