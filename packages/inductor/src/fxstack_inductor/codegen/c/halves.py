"""Convert half precision around a vector loop: into arrays of floats before the loop, from arrays of floats after it.

Processors convert sixteen halves in one instruction, but GCC cannot vectorise to it (``f16_load`` and
``f16_store`` are a dozen integer instructions each); ``read_f16`` and ``write_f16`` of ``prelude.h`` use the
instruction. ``read_bf16`` and ``write_bf16`` are vectors as long as the loop's, so that no vector is read from two.
A loop that mixes 16-bit loads and 32-bit arithmetic must split and join vectors; with the arrays, the loop between
uses floats alone. No instruction takes 16-bit elements from places apart, so that a loop
with one such read would be no vector loop: the read gets a loop of its own.

Results that go past the caches, of any type, wait in arrays, too (``streams``). A loop of slow functions over rows with a rest
copies single and double precision as well: its arrays go on beyond the row, up to whole vectors.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from fxstack_inductor.codegen.c.claims import FLAG_CLAUSE, ONE_BY_ONE, UNVECTORISED, checks_indices, claim
from fxstack_inductor.codegen.c.ops import HALVES, REGISTER, STORAGE
from fxstack_inductor.codegen.c.pointwise.row_values import array_dtype
from fxstack_inductor.codegen.c.sharing import LINE
from fxstack_inductor.codegen.c.streams import NONE, Streams, streams_of
from fxstack_inductor.codegen.c.text import Names
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.expr import ZERO, Expr, Var
from fxstack_inductor.ir.kernel import (
    Check,
    Compute,
    Constant,
    Load,
    Reduce,
    Scan,
    Store,
    index_operands,
    operands,
)
from fxstack_inductor.ir.scalar_ops import EXPENSIVE, HALF_ROUNDINGS

RUN = 512
"""Elements of an array if the loop has no static bound: few enough to stay in the first-level cache."""
VECTOR = 16
"""Lanes of a vector of floats. The lengths of arrays are multiples of this: conversions fill whole vectors."""
HALF_DTYPES = frozenset(HALVES)
FLOATS = HALF_DTYPES | {torch.float32, torch.float64}
"""The types of which arrays may go on beyond a row."""
WORD = 4
"""Bytes of the elements that an instruction gathers sixteen of."""
NEAR = 4
"""Elements further apart than this are read one by one."""
MIN_LOOP_POINTS, MIN_FUNCTIONS = 8, 3
"""Shorter loops, and shorter ones of slow functions, convert their elements one by one."""


@dataclass(frozen=True, slots=True)
class Halves:
    """The conversions around a loop over ``var``: half-precision loads (by position in the kernel) and stores."""

    var: Var
    loads: dict[int, Load]
    stores: list[Store]
    """Stores whose results become halves after the loop."""
    far: Sequence[int] = ()
    """The loads of elements apart, under a condition or not, which a loop of their own reads."""
    places: Sequence[int] = ()
    """The values that the places of these elements, and the conditions, are computed from."""
    scattered: Sequence[Store] = ()
    """Stores of elements apart, which a loop of their own writes."""
    spaced: Mapping[int, Load] = field(default_factory=dict)
    """The loads of elements a few places apart, which a loop of vectors takes from arrays."""
    streams: Streams = NONE
    """Stores that go past the caches after the loop."""

    def __bool__(self) -> bool:
        return bool(self.loads or self.held or self.far or self.spaced or self.streams.stores)

    @property
    def run(self) -> int:
        """The most points between two conversions, if the loop has no other bound."""
        return self.streams.run or RUN

    def skew(self, names: Names, start: str) -> str | None:
        """Return, as C, how many points behind the begin of a line ``start`` is, if runs are to begin with lines."""
        if not self.streams.skewed:
            return None
        store = self.streams.stores[0]
        place = self._place(names, store.buffer, store.index, start)
        return f"((intptr_t)({place}) & {LINE - 1}) / {names.dtypes[store.buffer].itemsize}"

    @property
    def held(self) -> list[Store]:
        """The stores whose results arrays hold until the loop ends."""
        return [*self.stores, *self.scattered]

    def enter(
        self, names: Names, first: str, count: str, most: str, *, padded: bool = False
    ) -> Iterator[str]:
        """Declare arrays of ``most`` elements; fill the arrays of loads with ``count`` points from ``first``.

        ``padded``: numbers follow up to whole vectors. They are written first: a vector that is read where two stores met waits
        for both. The first element is among the numbers that the loop expects; functions may be slow for others.
        """
        stop = f"({count} + {VECTOR - 1}) / {VECTOR} * {VECTOR}"
        most = str(-(-int(most) // VECTOR) * VECTOR)
        for n, store in enumerate(self.streams.stores):
            yield f"{STORAGE[names.dtypes[store.buffer]]} streamed{n}[{most}] __attribute__((aligned(64)));"
            names.targets[store] = f"streamed{n}"
        for k, load in self.loads.items():
            source = names.staged.get(k) or self._place(names, load.buffer, load.index, first)
            if k in names.staged and names.staged_at != "j":
                source += f" + {first}" + (f" - {names.staged_first}" if names.staged_first else "")
            kind = _array_type(names.dtypes[load.buffer])
            yield f"{kind} half{k}[{most}] __attribute__((aligned(64)));"
            storage = STORAGE[names.dtypes[load.buffer]]
            yield from [f"pad_{storage}(half{k}, {source}, {count});"] if padded else []
            yield f"read_{storage}(half{k}, {source}, {count});"
            names.floats[k] = f"half{k}"
        for k in self.spaced:
            yield from self._read_spaced(names, k, first, count, most)
            names.floats[k] = f"half{k}"
        if self.far:
            yield from (
                f"{self._kind(names, k)} half{k}[{most}] __attribute__((aligned(64)));" for k in self.far
            )
            yield from (
                f"for (int64_t j = {count}; j < {stop}; j++) half{k}[j] = 0;" for k in self.far if padded
            )
            yield from self._read_far(names, first, count, most)
            names.floats.update({k: f"half{k}" for k in self.far})
            names.skipped.update(self.only_places(names))
        for n, store in enumerate(self.held):
            yield f"{_array_type(names.dtypes[store.buffer])} result{n}[{most}] __attribute__((aligned(64)));"
            if store in self.scattered:
                yield f"{STORAGE[names.dtypes[store.buffer]]} narrow{n}[{most}];"
            names.results[store] = f"result{n}"

    def _read_spaced(self, names: Names, k: int, first: str, count: str, most: str) -> Iterator[str]:
        """Yield C that reads elements a few places apart as vectors, and converts them."""
        load = self.spaced[k]
        dtype, step = names.dtypes[load.buffer], _step(load.index, self.var)
        word, kind, storage = f"uint{8 * dtype.itemsize}_t", self._kind(names, k), STORAGE[dtype]
        yield f"{kind} half{k}[{most}] __attribute__((aligned(64)));"
        target = f"spaced{k}" if kind != storage else f"half{k}"
        yield from [f"{storage} {target}[{most}] __attribute__((aligned(64)));"] if kind != storage else []
        source = self._place(names, load.buffer, load.index, f"({first}) * {step}")
        yield f"spaced_{word}(({word}*){target}, (const {word}*)({source}), {step}, {count});"
        yield from [f"read_{storage}(half{k}, {target}, {count});"] if kind != storage else []

    def _read_far(self, names: Names, first: str, count: str, most: str) -> Iterator[str]:
        """Yield the loop that reads the elements apart, behind a vector loop that computes their places, if that is necessary."""
        values = names.kernel.values
        known = {k: f"const {REGISTER[values[k].dtype]} v{k} = {row}[j];" for k, row in names.rows.items()}
        compute = [known.get(k) or " ".join(names.declarations(k)) for k in self.places]
        if any(isinstance(values[k], Check) and k not in known for k in self.places):
            ends = sorted({a for k in self.far for a in operands(values[k])}.intersection(self.places))
            yield from (f"{REGISTER[array_dtype(values[k])]} place{k}[{most}];" for k in ends)
            flag = FLAG_CLAUSE if checks_indices(names.kernel) else ""
            yield f"#pragma omp simd{flag} {claim(names.kernel, self.places, None).comment}"
            yield from self._loop(first, count, [*compute, *(f"place{k}[j] = v{k};" for k in ends)])
            compute = [f"const {REGISTER[values[k].dtype]} v{k} = place{k}[j];" for k in ends]
        yield ONE_BY_ONE
        reads = [f"half{k}[j] = {names.expression(k)};" for k in self.far]
        yield from self._loop(first, count, [*compute, *reads, UNVECTORISED])

    def _loop(self, first: str, count: str, body: Iterable[str]) -> Iterator[str]:
        yield f"for (int64_t j = 0; j < {count}; j++) {{"
        yield f"  const int64_t {self.var.name} = {first} + j;"
        yield from (f"  {line}" for line in body)
        yield "}"

    def _kind(self, names: Names, load: int) -> str:
        """Return the C type of the array that has the elements of the load at a position."""
        value = names.kernel.values[load]
        assert isinstance(value, Load)
        return _array_type(names.dtypes[value.buffer])

    def leave(self, names: Names, first: str, count: str) -> Iterator[str]:
        """Store the results; after the loop, loads and stores convert one by one again."""
        for n, store in enumerate(self.held):
            apart = f"narrow{n}" if store in self.scattered else None
            target = apart or names.targets.get(store) or self._place(names, store.buffer, store.index, first)
            yield f"write_{STORAGE[names.dtypes[store.buffer]]}({target}, result{n}, {count});"
            if apart:
                yield f"for (int64_t j = 0; j < {count}; j++) {{"
                yield f"  const int64_t {self.var.name} = {first} + j;"
                yield f"  {names.element(store.buffer, store.index)} = {apart}[j];"
                yield "}"
            del names.results[store]
        for n, store in enumerate(self.streams.stores):
            place = self._place(names, store.buffer, store.index, first)
            yield f"stream({place}, streamed{n}, ({count}) * sizeof(*streamed{n}));"
            del names.targets[store]
        for k in (*self.loads, *self.far, *self.spaced):
            del names.floats[k]
        names.skipped.difference_update(self.places)

    def only_places(self, names: Names) -> set[int]:
        """Return the values that nothing but the places of the elements apart needs."""
        kernel = names.kernel
        if any(isinstance(v, (Reduce, Scan)) for v in kernel.values):
            return set()  # another pass may need them
        others = [v for k, v in enumerate(kernel.values) if k not in {*self.places, *self.far}]
        needed = {a for v in others for a in operands(v)}
        copied = (kernel.values[s.value] for s in kernel.copied)  # they read the element again
        needed.update(a for load in copied for a in operands(load))
        needed.update(k for s in kernel.stores for k in (s.value, *index_operands(s.index)))
        # From the last to the first: what a value that is needed is computed from is needed, too.
        for k in reversed(self.places):
            needed.update(operands(kernel.values[k]) if k in needed else ())
        return set(self.places) - needed

    def _place(self, names: Names, buffer: str, index: Expr, first: str) -> str:
        """Return the C address of the first element that the loop reads or writes, at point ``first``."""
        start = index.subs({self.var: ZERO})
        return f"{names.buffers[buffer]} + {c_index(start)} + {first}"


def halves(
    names: Names,
    var: Var,
    computed: Sequence[int],
    stores: Sequence[Store],
    outside: Container[int],
    *,
    dtypes: frozenset[torch.dtype] = frozenset(),
    points: int | None = None,
    chunk: int | None = None,
    skew: bool = False,
    whole: bool = False,
) -> Halves:
    """Return what goes through arrays in a loop over ``var``: contiguous halves, and results that go past the caches.

    ``computed``: the loop's values; ``outside``: values that the loop does not change, which addresses may
    use. ``dtypes``: what goes through arrays in any case, for example where the loop is one vector, and its arrays are registers.
    ``points``: how far neighbours go on, if beyond the
    extent of ``var``. ``chunk``: how many points between two conversions decide which results go past the caches; None: those of
    a run, of which the first may be shorter with ``skew``. ``whole``: whether the loop consists of whole vectors. GCC writes the
    last points of a loop that reads every second element one by one, as a vector might reach over the end.
    """
    extent = points if points or var.extent is None else var.extent.as_int()
    values = names.kernel.values
    inside = [values[k] for k in computed]
    heavy = any(isinstance(v, Compute) and v.op in EXPENSIVE for v in inside)
    if extent is not None and extent < (MIN_FUNCTIONS if heavy else MIN_LOOP_POINTS):
        return Halves(var, {}, [])
    converted_dtypes = dtypes | (HALF_DTYPES if heavy else {torch.float16})

    def fits(access: Load | Store, *, turned: bool = False) -> bool:
        beside = turned or _beside(access.index, var, outside)
        return beside and names.dtypes[access.buffer] in converted_dtypes

    exclusive = [s for s in stores if _apart(names, s) and s not in names.kernel.copied]
    copied = {s.value for s in stores if s in names.kernel.copied}
    read = {a for k in computed for a in operands(values[k])}.union(s.value for s in exclusive)
    fresh = [k for k in computed if k not in names.rows and (k in read or k not in copied)]
    loads = {k: v for k in fresh if isinstance(v := values[k], Load)}
    converted = {k: v for k, v in loads.items() if v.mask is None and fits(v, turned=k in names.staged)}
    far, places = _far(
        names, var, {k: v for k, v in loads.items() if k not in names.staged}, computed, outside
    )
    held = [s for s in exclusive if fits(s, turned=s in names.targets)]
    scattered = [
        s
        for s in exclusive
        if s not in held and not s.op and names.dtypes[s.buffer] in HALF_DTYPES & converted_dtypes
        if _distant(s.index, var)
        if all(k in outside for k in index_operands(s.index))
    ]
    kept = {*names.targets, *names.reread}
    plain = [s for s in stores if s not in kept and _beside(s.index, var, outside)]
    streams = streams_of(names.kernel, [] if dtypes else plain, var, extent, chunk, skew=skew)
    rest = {k: v for k, v in loads.items() if whole and k not in {*names.staged, *far, *places}}
    spaced = {k: v for k, v in rest.items() if _spaced(names, v, var, outside)}
    return Halves(var, converted, held, far, places, scattered, spaced, streams)


def _spaced(names: Names, load: Load, var: Var, outside: Container[int]) -> bool:
    """Whether neighbouring points of the loop over ``var`` read elements a few places apart, which are moved as words."""
    near = 1 < (_step(load.index, var) or 0) <= NEAR and names.dtypes[load.buffer].itemsize > 1
    return near and load.mask is None and all(k in outside for k in operands(load))


def _array_type(dtype: torch.dtype) -> str:
    """Return the C type in which an array holds elements of ``dtype``."""
    return "float" if dtype in HALVES else STORAGE[dtype]


def _step(index: Expr, var: Var) -> int | None:
    """Return the elements between neighbouring points of the loop over ``var``; None if that is no constant."""
    step = index.coefficient(var)
    return None if step is None else step.as_int()


def _distant(index: Expr, var: Var) -> bool:
    """Whether neighbouring points of the loop over ``var`` address elements apart."""
    step = _step(index, var)
    return step is None or abs(step) > NEAR


def _far(
    names: Names, var: Var, loads: dict[int, Load], computed: Sequence[int], outside: Container[int]
) -> tuple[list[int], list[int]]:
    """Return the loads at places, those of half-precision elements apart, and the loop's values that their places come from."""

    def apart(index: Expr) -> bool:
        return _distant(index, var) or not all(k in outside for k in index_operands(index))

    found = {
        k: _chain(names, operands(v), computed, outside)
        for k, v in loads.items()
        if apart(v.index) and (names.dtypes[v.buffer] in HALF_ROUNDINGS.values() or operands(v))
    }
    known = {
        k: chain
        for k, chain in found.items()
        if chain is not None
        and (names.dtypes[loads[k].buffer] in HALF_ROUNDINGS.values() or _at_place(names, loads[k], chain))
    }
    places = {k for chain in known.values() for k in chain}
    return [k for k in known if k not in places], sorted(places)


def _at_place(names: Names, load: Load, chain: Iterable[int]) -> bool:
    """Whether a loop of its own reads an element of at least 32 bits faster than an instruction that gathers several.

    These instructions are worth conditions and, for more than eight elements, places that are computed beside them.
    """
    values = [v for k in chain if k not in names.rows and not isinstance(v := names.kernel.values[k], Load)]
    checks = all(isinstance(v, Check) and v.mask is None for v in values)
    return load.mask is None and checks and (not values or names.dtypes[load.buffer].itemsize != WORD)


def _chain(
    names: Names, roots: Iterable[int], computed: Container[int], outside: Container[int]
) -> set[int] | None:
    """Return the values of a loop that ``roots`` are computed from; None if the loop gets one of them in another way."""
    chain: set[int] = set()
    waiting = list(roots)
    while waiting:
        k = waiting.pop()
        value = names.kernel.values[k]
        if k in outside or k in chain or isinstance(value, Constant):
            continue
        chain.add(k)
        if k in names.rows:
            continue
        if k not in computed or k in names.finished or isinstance(value, (Reduce, Scan)):
            return None
        waiting += operands(value)
    return chain


def _apart(names: Names, store: Store) -> bool:
    """Whether no other store of the kernel touches the buffer: conversions may then write its elements later."""
    ops = [other.op for other in names.kernel.stores if other.buffer == store.buffer]
    return not any(ops) or ops == ["set"]


def _beside(index: Expr, var: Var, outside: Container[int]) -> bool:
    """Whether neighbouring points of the loop over ``var`` address neighbouring elements."""
    return _step(index, var) == 1 and all(k in outside for k in index_operands(index))
