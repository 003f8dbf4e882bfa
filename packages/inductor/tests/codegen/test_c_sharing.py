"""Threads share loops so that no two of them store to one cache line: proofs, beside the lines that the stores touch."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fxstack_inductor.codegen.c.ranges import Range, ranges
from fxstack_inductor.codegen.c.sharing import LINE, share
from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import ZERO, Var, integer, of_atom
from fxstack_inductor.ir.kernel import BufferRef, Check, IndexValue, Kernel, Loop, Store

SIZE = of_atom(Var("s0", VarKind.SIZE))


def loop(name, extent):
    extent = integer(extent) if isinstance(extent, int) else extent
    return Loop(Var(name, VarKind.LOOP, extent), extent)


def kernel_of(extents, steps, *, outer, dtype=torch.float32, offset=0):
    """Loops with these extents, the first ``outer`` of them independent, and one store for each row of ``steps``."""
    loops = [loop(f"p{k}", extent) for k, extent in enumerate(extents)]
    stores, buffers = [], []
    for k, row in enumerate(steps):
        index = integer(offset)
        for item, step in zip(loops, row, strict=True):
            index = index + of_atom(item.var) * step
        stores.append(Store(f"b{k}", index, 0))
        buffers.append(BufferRef(f"b{k}", dtype, integer(1 << 20)))
    value = (IndexValue(ZERO, torch.int64),)
    return Kernel("k", tuple(loops[:outer]), tuple(loops[outer:]), value, tuple(stores), tuple(buffers), ())


def shared(kernel):
    return share(kernel, ranges(kernel.outer), kernel.stores)


def lines_of_blocks(kernel, sharing):
    """For each buffer, the lines that each block of the shared points stores to."""
    names = [item.name for item in sharing.loops[: sharing.shared]]
    others = [item for item in (*kernel.outer, *kernel.inner) if item.var.name not in names]
    extents = [item.loop.extent.as_int() for item in sharing.loops[: sharing.shared]]
    found = [{} for _ in kernel.stores]
    for position, point in enumerate(itertools.product(*map(range, extents))):
        block = position // int(sharing.unit)
        for rest in itertools.product(*(range(item.extent.as_int()) for item in others)):
            values = dict(zip(names, point)) | {i.var.name: v for i, v in zip(others, rest)}
            for store, lines, ref in zip(kernel.stores, found, kernel.buffers):
                line = store.index.evaluate(values) * ref.dtype.itemsize // LINE
                lines.setdefault(line, set()).add(block)
    return found


@st.composite
def kernels(draw):
    """Loops of few points; each buffer is written in an order of its own, with gaps between rows or not."""
    extents = draw(st.lists(st.sampled_from([2, 3, 4, 5, 8, 16, 17, 32]), min_size=1, max_size=4))
    while math.prod(extents) > 6000:
        extents.pop()
    outer = draw(st.integers(1, len(extents)))
    steps = []
    for _ in range(draw(st.integers(1, 2))):
        row, step = [0] * len(extents), draw(st.sampled_from([1, 1, 1, 2, 16]))
        for k in draw(st.permutations(range(len(extents)))):
            row[k] = step
            step *= extents[k] + draw(st.sampled_from([0, 0, 0, 1, 16]))
        steps.append(row)
    dtype = draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.bool]))
    return kernel_of(extents, steps, outer=outer, dtype=dtype)


@settings(max_examples=300, deadline=None)
@given(kernels())
def test_no_line_belongs_to_two_blocks(kernel):
    sharing = shared(kernel)
    if sharing is None:
        return
    assert not sharing.conditions
    for lines in lines_of_blocks(kernel, sharing):
        assert all(len(blocks) == 1 for blocks in lines.values())


@pytest.mark.parametrize(
    ("extents", "steps", "outer", "count", "unit"),
    [
        pytest.param((4096,), [(1,)], 1, 1, "16", id="one loop in lines"),
        pytest.param((300, 17), [(17, 1)], 2, 2, "16", id="odd rows in one order"),
        pytest.param((300, 17), [(17, 1)], 1, 1, "16", id="sixteen odd rows"),
        pytest.param((300, 64), [(64, 1)], 1, 1, "1", id="rows of whole lines"),
        pytest.param((300, 64), [(1, 512)], 1, 1, "16", id="columns"),
        pytest.param((2, 16, 32, 16), [(16, 1, 512, 32)], 2, 2, "16", id="heads to columns"),
        pytest.param((300, 40), [(1, 300)], 2, 1, "4", id="turned over"),
    ],
)
def test_what_is_shared(extents, steps, outer, count, unit):
    sharing = shared(kernel_of(extents, steps, outer=outer))
    assert (sharing.shared, sharing.unit, sharing.conditions) == (count, unit, ())


@pytest.mark.parametrize(
    ("extents", "steps", "outer"),
    [
        pytest.param((8, 32, 16), [(8, 512, 32)], 1, id="pieces of eight floats that alternate"),
        pytest.param((4, 100), [(1, 4)], 1, id="single floats that alternate"),
        pytest.param((12, 100000), [(1, 0)], 1, id="one float for a long row"),
        pytest.param((64, 33), [(1, 65)], 1, id="columns of odd rows"),
    ],
)
def test_what_is_not_shared(extents, steps, outer):
    assert shared(kernel_of(extents, steps, outer=outer)) is None


def test_the_order_of_loops_may_change():
    sharing = shared(kernel_of((4, 600, 5), [(5, 20, 1)], outer=3))
    assert [item.name for item in sharing.loops[: sharing.shared]] == ["p1"]


def test_sizes_that_are_not_known_are_conditions_or_blocks_computed_in_the_call():
    rows = kernel_of((SIZE, SIZE), [(SIZE, 1)], outer=1)
    assert shared(rows).unit == "line_block(s0, 16)"
    assert not shared(rows).conditions
    heads = kernel_of((8, 64, 32), [(64, 1, SIZE * 512)], outer=1)
    assert shared(kernel_of((64, 16), [(16, SIZE)], outer=1)) is None  # nothing says that rows are apart
    assert shared(heads) is None
    aligned = kernel_of((SIZE, 5, 32), [(32, SIZE * 32 + SIZE, 1)], outer=1)
    assert shared(aligned).conditions == ("(s0*33) % 16 == 0",)


def test_places_that_the_kernel_reads_count_as_far_as_they_are_checked():
    def scatter(columns, step):
        kernel = kernel_of((columns, 100), [(1, 0)], outer=1)
        place = of_atom(Var("v1", VarKind.VALUE)) * step
        values = (*kernel.values, Check(0, integer(50), torch.int64))
        store = Store("b0", kernel.stores[0].index + place, 0, "add")
        return Kernel("k", kernel.outer, kernel.inner, values, (store,), kernel.buffers, ())

    assert shared(scatter(64, 64)).unit == "16"
    assert shared(scatter(50, 50)) is None  # rows begin inside of lines


def test_tiles_are_digits_of_their_own():
    kernel = kernel_of((512, 64), [(1, 512)], outer=1)
    tile = Range("tile", kernel.outer[0], "step", of_atom(Var("step", VarKind.SIZE)) * 64)
    sharing = share(kernel, [tile], kernel.stores)
    assert (sharing.unit, sharing.conditions, sharing.blocks) == ("1", (), None)
