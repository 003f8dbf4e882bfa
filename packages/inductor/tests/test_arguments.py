"""Calls of a compiled graph with arguments that it is not for are errors, and read nothing."""

import pytest
import torch
from inductor_checks import FAST, trace

import fxstack_inductor as fi

X, Y = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0))


def compiled(fn, *inputs, symbolic=False, **options):
    return fi.compile_graph(trace(fn, *inputs, symbolic=symbolic), inputs, FAST, **options)


def added(x, y):
    return ((x.sin() + y).reshape(-1, 2),)


STATIC = compiled(added, X, Y)
OTHERS = {
    "fewer rows": (X[:2], r"float32\[4, 6\] on cpu, but it is float32\[2, 6\]"),
    "more rows": (torch.ones(8, 6), r"float32\[4, 6\] on cpu, but it is float32\[8, 6\]"),
    "other rank": (X[0], r"float32\[4, 6\] on cpu, but it is float32\[6\]"),
    "wider dtype": (X.double(), r"float32\[4, 6\] on cpu, but it is float64\[4, 6\]"),
    "narrower dtype": (X.half(), r"but it is float16\[4, 6\]"),
    "other device": (X.to("meta"), r"on cpu, but it is float32\[4, 6\] on meta"),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("place", [0, 1])
def test_other_tensors(name, place):
    other, text = OTHERS[name]
    inputs = [X, Y]
    inputs[place] = other
    with pytest.raises(fi.ArgumentError, match=rf"input arg{place}_1 .* must be .*{text}"):
        STATIC(*inputs)


def test_what_is_no_tensor_or_missing():
    with pytest.raises(TypeError, match="takes 2 inputs, not 1"):
        STATIC(X)
    with pytest.raises(TypeError, match="arg1_1 of a compiled graph is no tensor, but 3"):
        STATIC(X, 3)


@pytest.mark.parametrize("other", [X.t().contiguous().t(), torch.randn(8, 6)[::2], X.clone()])
def test_other_strides_are_no_error(other):
    torch.testing.assert_close(STATIC(other, X), added(other, X))


def test_symbolic_sizes():
    run = compiled(added, X, Y, symbolic=True)
    for rows, columns in ((4, 6), (3, 8), (1, 2)):
        x, y = torch.randn(2, rows, columns)
        torch.testing.assert_close(run(x, y), added(x, y))
    with pytest.raises(fi.ArgumentError, match=r"= 3.* but it is float32\[3, 4\]"):
        run(torch.randn(3, 8), torch.randn(3, 4))
    with pytest.raises(fi.ArgumentError, match=r"Mod\(.*, 2\).* but in this call .* = 5"):
        run(torch.randn(5, 3), torch.randn(5, 3))
    with pytest.raises(fi.ArgumentError, match="float64"):
        run(X.double(), X)


def test_conjugates():
    z = torch.randn(3, dtype=torch.complex64)
    run = compiled(lambda z: (z * 2,), z)
    torch.testing.assert_close(run(z), (z * 2,))
    with pytest.raises(fi.ArgumentError, match="conjugation"):
        run(z.conj())


def test_lists_of_arguments():
    run = compiled(added, X, Y, boxed=True)
    with pytest.raises(fi.ArgumentError, match="float64"):
        run([X, X.double()])
    given = [X, X]
    torch.testing.assert_close(run(given), added(X, X))
    assert run.boxed and not given


def test_callers_that_have_checked():
    run = compiled(added, X, Y, check_arguments=False)
    torch.testing.assert_close(run(X, X), added(X, X))
    assert not hasattr(run, "check")
