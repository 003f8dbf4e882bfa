"""Kernels as programs write them, each with what it writes to."""

import triton
import triton.language as tl

WRITES = {}


def writes(*names):
    def register(kernel):
        WRITES[kernel.fn.__name__] = (kernel, names)
        return kernel

    return register


@triton.jit
def store_through(pointer, value, mask):
    tl.store(pointer, value, mask=mask)


@triton.jit
def moved(pointer, offset):
    return pointer + offset


@writes("out")
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(out + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m), mask=m)


@writes("x")
@triton.jit
def scale(x, y, out, n, BLOCK: tl.constexpr, by=2.5):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) * by, mask=i < n)


@writes("out")
@triton.jit
def through_calls(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    store_through(moved(out, i), tl.load(moved(x, i), mask=m) + tl.load(moved(y, i), mask=m), m)


@writes("out")
@triton.jit
def moving_in_a_loop(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    source, target = x, out
    for start in range(0, n, BLOCK):
        value = tl.load(source + i, mask=start + i < n)
        if start >= 0:
            store_through(target + i, value, start + i < n)
        source += BLOCK
        target += BLOCK


@writes("out", "y")
@triton.jit
def chosen_by_a_branch(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    for k in range(2):
        if k == 0:
            target = out
        else:
            target = y
        tl.store(target + i, tl.load(x + i, mask=i < n), mask=i < n)


@writes("out")
@triton.jit
def summed_by_atomics(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + i, mask=i < n, other=0), 0))


@writes("out")
@triton.jit
def scattered(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    where = tl.abs(tl.load(y + i, mask=m, other=0)).to(tl.int32) % n
    tl.store(out + where, tl.load(x + i, mask=m), mask=m)


@writes("out")
@triton.jit
def through_descriptors(x, y, out, n, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [n], [1], [BLOCK])
    target = tl.make_tensor_descriptor(out, [n], [1], [BLOCK])
    at = tl.program_id(0) * BLOCK
    target.store([at], source.load([at]))


@writes("out")
@triton.jit
def returning_early(x, y, out, n, BLOCK: tl.constexpr):
    if n < 0:
        return
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)


@writes("out")
@triton.jit
def while_it_lasts(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    source, target, left = x, out, n
    while left > 0:
        tl.store(target + i, tl.load(source + i, mask=i < left), mask=i < left)
        source, target, left = source + BLOCK, target + BLOCK, left - BLOCK


@writes("x", "y", "out")
@triton.jit
def through_a_loaded_address(x, y, out, n, BLOCK: tl.constexpr):
    """Where the address comes from cannot be told: everything counts."""
    address = tl.load(y).to(tl.int64)
    if n < 0:
        tl.store(address.to(tl.pointer_type(tl.float32)), 0.0)
