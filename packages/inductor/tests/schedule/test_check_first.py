"""A program that takes a list checks its indices first, and frees its inputs as it goes."""

import gc
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from inductor_checks import FAST, copies, trace

import fxstack_inductor as fi

X, W = torch.randn(64, 64), torch.randn(64, 64)
INDEX = torch.tensor([3, -1, 0])


def looked_up(x, w, i):
    """The products come first, the index is read last."""
    return (x.sin() @ w).cos()[i] * 2


def scattered(x, w, i):
    return F.embedding(i % 7, x @ w).sum(0), w.index_add(0, i.clamp(0, 63), x[:3])


def masked(x, w, i):
    return torch.where(i[:, None] > 0, F.pad(x @ w, (0, 0, 0, 2))[i.clamp(min=-66)], 0.0)


def of_two_sizes(x, w, i):
    return (x @ w)[:7][i.clamp(-7, 6)], w[i]


def of_an_index(x, w, i):
    return (x @ w)[INDEX.new_tensor([5, 2, 4, 1])[i.clamp(-4, 3)]], i[i.clamp(-3, 2)]


def of_a_stored_index(x, w, i):
    """The index takes long and is read twice, so that a kernel of its own makes it."""
    j = (i.float().sin().abs() * 60).long()
    return (x @ w).index_add(0, j, x[:3]), w.index_add(0, j, x[:3])


def scattered_into_an_index(x, w, i):
    """The start value of the scatter is in range, the result may not be."""
    j = torch.zeros(8, dtype=torch.long).scatter(0, torch.arange(3), i)
    return (x @ w)[j]


def found_by_a_step(x, w, i):
    return (x @ w)[(x @ w)[:3].argmax(1) + i]


PROGRAMS = (
    *(looked_up, scattered, masked, of_two_sizes, of_an_index),
    *(of_a_stored_index, scattered_into_an_index, found_by_a_step),
)


def steps(fn, *inputs, symbolic=False, boxed=True):
    lowered = fi.lower(trace(fn, *inputs, symbolic=symbolic), (), FAST, boxed=boxed)
    return [step.kernel for step in lowered.plan.steps if hasattr(step, "kernel")]


def boxed(fn, *inputs, symbolic=False, options=FAST):
    return fi.compile_graph(trace(fn, *copies(inputs), symbolic=symbolic), (), options, boxed=True)


@pytest.mark.parametrize("host", ["auto", "python"])
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("fn", PROGRAMS)
def test_values_are_those_of_eager(fn, symbolic, host):
    call = boxed(fn, X, W, INDEX, symbolic=symbolic, options=replace(FAST, host=host))
    passed, want = copies([X, W, INDEX]), fn(X, W, INDEX)
    torch.testing.assert_close(call(passed), want if isinstance(want, tuple) else (want,))
    assert not passed


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("fn", [looked_up, masked, of_two_sizes, of_an_index])
def test_only_the_first_kernels_check(fn, symbolic):
    checks = [kernel.only_checks for kernel in steps(fn, X, W, INDEX, symbolic=symbolic)]
    assert checks == sorted(checks, reverse=True)
    assert checks[0]
    assert not any(kernel.checked for kernel in steps(fn, X, W, INDEX) if not kernel.only_checks)


def test_what_makes_an_index_comes_before_its_check():
    found = steps(of_a_stored_index, X, W, INDEX)
    assert [kernel.only_checks for kernel in found[:2]] == [False, True]
    assert not any(kernel.checked for kernel in found if not kernel.only_checks)


@pytest.mark.parametrize(
    ("fn", "given"),
    [(looked_up, {"boxed": False}), (found_by_a_step, {}), (lambda x, w, i: x.gather(0, i), {})],
    ids=["not boxed", "an index of a step", "a large index"],
)
def test_what_cannot_be_checked_first_is_checked_where_it_is_read(fn, given):
    index = torch.zeros(64, 64).long() if fn.__name__ == "<lambda>" else INDEX
    found = steps(fn, X, W, index, **given)
    assert any(kernel.checked for kernel in found)
    assert not any(kernel.only_checks for kernel in found)


@pytest.mark.parametrize("host", ["auto", "python"])
@pytest.mark.parametrize("fn", [looked_up, of_two_sizes, scattered_into_an_index, found_by_a_step])
def test_an_index_out_of_range_raises_what_eager_raises(fn, host):
    wrong = torch.tensor([3, 64, 0])
    with pytest.raises(IndexError) as want:
        fn(X, W, wrong)
    call = boxed(fn, X, W, INDEX, options=replace(FAST, host=host))
    for _ in range(2):
        passed = copies([X, W, wrong])
        with pytest.raises(IndexError) as got:
            call(passed)
        assert str(got.value) == str(want.value)
    torch.testing.assert_close(
        call(copies([X, W, INDEX]))[0], boxed(fn, X, W, INDEX)(copies([X, W, INDEX]))[0]
    )


@pytest.mark.parametrize("host", ["auto", "python"])
def test_inputs_are_freed_before_the_last_step(host):
    def fn(x, w, i):
        return (torch.sort(x.sin() @ w)[0] + 1).sort(0)[0][i]

    seen = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append([ref.expired() for ref in watched])
            return func(*args, **(kwargs or {}))

    call = boxed(fn, X, W, INDEX, options=replace(FAST, host=host))
    passed = copies([X, W, INDEX])
    watched = [torch._C._WeakTensorRef(value) for value in passed]
    gc.collect()
    with Watch():
        call(passed)
    assert [True, True, False] in seen
