"""Loops over tables in the native host program: many inputs, tensors, views, operands and results."""

from dataclasses import replace

import pytest
import torch
from inductor_checks import FAST, check, copies, trace

import fxstack_inductor as fi

PYTHON = replace(FAST, host="python")


def inputs(count, *more):
    return [torch.randn(3, 4 + k % 3) for k in range(count)] + list(more)


def transposed(x):
    """Return the values of ``x`` with other strides."""
    return x.t().contiguous().t()


def doubled(*xs):
    return [x * 2 for x in xs]


def viewed(*xs):
    return [part for x in xs for made in (x + 1,) for part in (made.t(), made[1:], made.flatten(), made)]


def mixed(*xs):
    return [*xs[::2], None, 7, *(x.t() for x in xs[1::2]), *(x.sum() for x in xs), xs[0]]


def sorted_of(*xs):
    return [part for x in xs for values, order in (x.sort(0),) for part in (values, order + 1)]


def written(*xs):
    for x in xs[::2]:
        x.add_(1)
    return [x.sin() for x in xs]


PROGRAMS = (doubled, viewed, mixed, sorted_of, written)


def boxed(fn, given, passed):
    """Return the results of ``fn``, compiled for ``given``, for a list ``passed``."""
    return fi.compile_graph(trace(fn, *copies(given)), (), FAST, boxed=True)(passed)


def lines_of_program(fn, count):
    compiled = fi.compile_graph(trace(fn, *inputs(count)), (), FAST)
    return compiled.lowered.program.c.split("fxstack_call(")[1].count("\n")


@pytest.mark.parametrize("options", [FAST, PYTHON])
@pytest.mark.parametrize("fn", PROGRAMS)
def test_it_computes_what_eager_does(fn, options):
    check(fn, *inputs(9), options=options)


@pytest.mark.parametrize("fn", PROGRAMS)
def test_symbolic_sizes_are_written_as_statements(fn):
    check(fn, *inputs(5), symbolic=True, others=[[torch.randn(7, 4 + k % 3) for k in range(5)]])


@pytest.mark.parametrize("fn", [doubled, viewed, mixed, sorted_of])
@pytest.mark.parametrize("changed", [(0,), (2, 3), range(9)])
def test_inputs_with_other_strides_are_copied(fn, changed):
    given = inputs(9)
    passed = [transposed(x) if k in changed else x for k, x in enumerate(given)]
    compiled = fi.compile_graph(trace(fn, *given), (), FAST)
    torch.testing.assert_close(list(compiled(*passed)), fn(*given))


@pytest.mark.parametrize("fn", [doubled, viewed, mixed, sorted_of])
def test_a_list_of_inputs_is_emptied(fn):
    given = inputs(9)
    passed = [transposed(x) if k % 2 else x for k, x in enumerate(given)]
    torch.testing.assert_close(list(boxed(fn, given, passed)), fn(*given))
    assert passed == []


def test_a_written_input_with_other_strides_is_refused():
    given = inputs(9)
    compiled = fi.compile_graph(trace(written, *copies(given)), (), FAST)
    with pytest.raises(ValueError, match="strides"):
        compiled(*given[:4], transposed(given[4]), *given[5:])


@pytest.mark.parametrize("position", [0, 4, 8])
def test_an_argument_that_is_no_tensor_is_refused(position):
    given = inputs(9)
    compiled = fi.compile_graph(trace(doubled, *given), (), FAST, check_arguments=False)
    with pytest.raises(TypeError, match="no tensor"):
        compiled(*given[:position], None, *given[position + 1 :])


def test_numbers_between_tensors_are_no_handles():
    def fn(x, a, y, z, b):
        return x * a, y + b, z.sum() * a

    check(fn, torch.randn(3), 2, torch.randn(4), torch.randn(5), 3.5)


def test_the_text_does_not_grow_with_the_inputs():
    def fn(*xs):
        return [xs[0].sin(), *(x.t() for x in xs)]

    assert lines_of_program(fn, 40) == lines_of_program(fn, 10)
