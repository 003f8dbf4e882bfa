"""The arena: buffers that are alive at the same time never overlap, others share."""

import threading
from unittest import mock

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inductor_checks import FAST, check, trace

import fxstack_inductor as fi
from fxstack_inductor.ir.expr import integer
from fxstack_inductor.ir.nodes import contiguous_layout
from fxstack_inductor.runtime.arena import shared_pool
from fxstack_inductor.schedule import memory
from fxstack_inductor.schedule.memory import Slot, place
from fxstack_inductor.schedule.steps import KernelStep

CPU = torch.device("cpu")


@st.composite
def lives(draw):
    made = []
    for k in range(draw(st.integers(1, 12))):
        first = draw(st.integers(0, 20))
        size = draw(st.integers(0, 500))
        layout = contiguous_layout([size], torch.float32, CPU)
        made.append(Slot(f"b{k}", layout, integer(size), first, first + draw(st.integers(0, 8))))
    return made


@given(lives(), st.sampled_from([2, 256]))
@settings(max_examples=200, deadline=None)
def test_overlapping_lives_do_not_overlap_in_memory(slots, many):
    with mock.patch.object(memory, "MANY", many):
        offsets, total = place(slots, {})
    for k, a in enumerate(slots):
        size = a.elements.as_int() * 4
        assert offsets[k] % 64 == 0
        assert offsets[k] + size <= total
        for j, b in enumerate(slots[:k]):
            if a.last < b.first or b.last < a.first:
                continue
            end = offsets[j] + b.elements.as_int() * 4
            assert offsets[k] + size <= offsets[j] or end <= offsets[k]


def test_many_numbers_take_turns():
    layout = contiguous_layout([1], torch.float32, CPU)
    slots = [Slot(f"b{k}", layout, integer(1), k, k + 3) for k in range(2000)]
    assert place(slots, {})[1] == 4 * 64


def test_a_chain_needs_the_memory_of_two():
    x = torch.randn(64, 64) / 16
    compiled = check(lambda x: (((x @ x).sin() @ x).cos() @ x).exp() @ x, x)
    workspace = compiled.lowered.program
    _, total = place(workspace.slots, {})
    assert len(workspace.slots) == 6
    assert total <= 2 * x.numel() * 4


def test_operators_that_see_an_argument_s_storage_get_one_of_its_own():
    def fn(x, y):
        a, b = (x * 2).cumsum(0), (y + 1).cumsum(0)
        filled = torch.as_strided_scatter(b.cumprod(0), a[:2], (2, 5), (5, 1), 5)
        return filled, torch.complex(a, b).cumsum(0).diagonal_scatter(torch.complex(a, b)[:, 0])

    x, y = torch.randn(5, 5), torch.randn(5, 5)
    sizes = [t.untyped_storage().nbytes() for t in check(fn, x, y)(x, y)]
    assert sizes == [t.untyped_storage().nbytes() for t in fn(x, y)]


def test_results_survive_the_next_call():
    compiled = check(lambda x: (x @ x).sin() @ x, torch.randn(16, 16))
    first = compiled(torch.ones(16, 16))[0]
    before = first.clone()
    compiled(torch.randn(16, 16))
    assert torch.equal(first, before)


def test_threads_have_blocks_of_their_own():
    def f(x):
        return ((x @ x).sin() @ x).cos() @ x

    x = torch.randn(48, 48)
    compiled = fi.compile_graph(trace(f, x), (x,))
    inputs = [torch.randn(48, 48) for _ in range(4)]
    failures = []

    def work(value):
        wanted = compiled(value)[0].clone()
        for _ in range(100):
            if not torch.equal(compiled(value)[0], wanted):
                failures.append(value)

    threads = [threading.Thread(target=work, args=(value,)) for value in inputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_blocks_go_back_to_the_pool():
    compiled = check(lambda x: (x @ x).sin() @ x, torch.randn(16, 16))
    compiled(torch.randn(16, 16))
    count = len(shared_pool().free)
    for _ in range(5):
        compiled(torch.randn(16, 16))
    assert len(shared_pool().free) == count


def test_symbolic_sizes_are_planned_per_size():
    w = torch.randn(8, 8)
    check(
        lambda x, w: (x @ w).sin() @ w + x.sum(0),
        torch.randn(5, 8),
        w,
        symbolic=True,
        others=[(torch.randn(n, 8), w) for n in (2, 7, 100, 5)],
    )


def test_zeros_are_written_when_something_is_added_to_them():
    def fn(x, i):
        y = (x @ x).sin() @ x
        return torch.ops.aten.embedding_dense_backward(y @ x, i, 99, -1, False)

    found = fi.lower(trace(fn, torch.randn(16, 16), torch.arange(16)), (), FAST).plan.steps
    (zeros,) = (k for k, step in enumerate(found) if isinstance(step, KernelStep) and not step.reads)
    assert zeros >= len(found) - 2
