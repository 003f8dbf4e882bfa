"""Elements at places from memory, and elements a few places apart: read before the vector loop that takes them."""

import ctypes
import mmap
import re

import pytest
import torch
from inductor_checks import FAST, check, trace

import fxstack_inductor as fi
from fxstack_inductor.codegen.c.claims import Claim

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16]
ONE_BY_ONE = f"#pragma GCC unroll 8 {Claim.PLACES.comment}"
PAGE = mmap.PAGESIZE


def t(dtype, *shape):
    """Numbers above 0: sums of them lose no digits."""
    return (torch.rand(shape, generator=torch.Generator().manual_seed(3)) * 9 + 1).to(dtype)


def order(size):
    return torch.randperm(size, generator=torch.Generator().manual_seed(4))


def text(fn, *inputs):
    return fi.lower(trace(fn, *inputs), options=FAST).c.partition("void kernel_0")[2]


GATHERS = {
    "copies": lambda x, i: x[..., i],
    "arithmetic": lambda x, i: x[..., i] * 2 + x,
    "functions": lambda x, i: (x[..., i].double() * 0.1).exp(),
    "sums": lambda x, i: (x[..., i].sum(-1), x[..., i].amax(-1), x[..., i] + x.amax(-1, True)),
    "columns": lambda x, i: (x[..., i].sum(0), x[..., i].amax(0)),
    "two orders": lambda x, i: x[..., i][..., i.flip(0)] * x[..., i.flip(0)],
    "conditions": lambda x, i: torch.cat([x[..., i], x[..., i] + x], -1),
    "negative places": lambda x, i: x[..., i - x.shape[-1]],
    "one row": lambda x, i: x[0][i],
}


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool, torch.uint8])
@pytest.mark.parametrize("name", GATHERS)
def test_gathers(name, dtype):
    for shape in ((9, 33), (20, 300)):
        check(GATHERS[name], t(dtype, *shape), order(shape[1]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_gathers_beside_a_stack_of_them(dtype):
    def fn(x, i):
        a = x[:, i]
        return a, torch.stack([a, a], -1), torch.cat([a, a], 0)

    check(fn, t(dtype, 33, 250), order(250)[:9])


@pytest.mark.parametrize(("size", "kept"), [(3000, True), (60_000, True), (70_000, False)])
def test_rows_of_places_are_kept_where_they_fit(size, kept):
    compiled = check(lambda x, i: x[:, i], t(torch.bfloat16, 9, size), order(size))
    assert bool(re.search(rf"int32_t a\d+\[{size}\];", compiled.lowered.c)) == kept


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_copies_from_places_are_one_scalar_loop(dtype):
    found = text(lambda x, i: x[:, i], t(dtype, 20, 100), order(100))
    assert found.count(ONE_BY_ONE) == 1
    assert "half2[" not in found


@pytest.mark.parametrize(
    ("dtype", "one_by_one"), [(torch.float32, False), (torch.float64, True), (torch.bfloat16, True)]
)
def test_places_that_are_checked_beside_take_an_array(dtype, one_by_one):
    found = text(lambda x, i: x[i] * 2, t(dtype, 5000), order(5000))
    assert (ONE_BY_ONE in found) == one_by_one
    assert ("int32_t place1[512];" in found) == one_by_one


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.bool])
@pytest.mark.parametrize("fn", [GATHERS["copies"], GATHERS["one row"], GATHERS["sums"], GATHERS["columns"]])
def test_bad_places_raise(fn, dtype):
    x = t(dtype, 20, 300)
    compiled = check(fn, x, order(300))
    for bad in (300, -301):
        with pytest.raises(IndexError, match="out of bounds"):
            compiled(x, torch.full((300,), bad))


GAPS = {
    "sums": lambda x: (x.sum(-1), x.amax(-1), x.amin(-1, True) - x),
    "positions": lambda x: (x.argmax(-1), x * 2),
    "functions": lambda x: (x.double() * 0.1).softmax(-1),
    "deviations": lambda x: x.double().std(-1),
    "two operands": lambda x: (x * x.flip(-1)).sum(-1),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", GAPS)
def test_gaps(name, dtype):
    for size, step in ((16, 2), (33, 2), (100, 3), (250, 2), (768, 2), (2000, 4)):
        x = t(dtype, 5, size * step)
        check(lambda x: GAPS[name](x[:, ::step]), x)
        check(lambda x: GAPS[name](x[:, 1::step]), x)


@pytest.mark.parametrize(("step", "copied"), [(1, False), (2, True), (4, True), (5, False)])
@pytest.mark.parametrize(("dtype", "word"), [(torch.float32, "uint32_t"), (torch.bfloat16, "uint16_t")])
def test_lanes_take_elements_a_few_places_apart_from_arrays(dtype, word, step, copied):
    found = text(lambda x: x[:, ::step].exp().sum(-1), t(dtype, 9, 64 * step))
    assert (f"spaced_{word}((" in found) == copied


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [64, 100, 250])
def test_no_read_goes_beyond_the_last_element(size, dtype):
    """The elements end with a page, and nothing may read the next one."""
    count = 9 * 2 * size - 1
    pages = -(-count * dtype.itemsize // PAGE)
    memory = mmap.mmap(-1, (pages + 1) * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    assert protect(ctypes.c_void_p(start + pages * PAGE), ctypes.c_size_t(PAGE), 0) == 0
    flat = torch.frombuffer(memory, dtype=dtype, count=count, offset=pages * PAGE - count * dtype.itemsize)
    x = flat.copy_(t(dtype, count)).as_strided((9, size), (2 * size, 2))
    for fn in (GAPS["sums"], GAPS["functions"]):
        compiled = fi.compile_graph(trace(fn, x), (x,), FAST)
        for got, want in zip(compiled(x), fn(x) if isinstance(fn(x), tuple) else (fn(x),)):
            torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
    assert protect(ctypes.c_void_p(start + pages * PAGE), ctypes.c_size_t(PAGE), 3) == 0
