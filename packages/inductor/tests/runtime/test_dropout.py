"""Dropout's random numbers: eager's own, bit for bit, and the generator's state after them."""

import ctypes

import numpy as np
import pytest
import torch
from inductor_checks import FAST, assert_equal, trace
from torch.nn import functional as F

import fxstack_inductor as fi
from fxstack_inductor.codegen.c.module import c_source
from fxstack_inductor.runtime.dropout import DRAW, DRAW_ARGUMENTS, bernoulli, threshold
from fxstack_inductor.runtime.loader import load_functions


@pytest.fixture(scope="module")
def draw():
    source = c_source((), FAST, random=True).text
    return load_functions(source, {DRAW: DRAW_ARGUMENTS}, FAST)[DRAW]


def same_as_eager(fn, *inputs):
    compiled = fi.compile_graph(trace(fn, *inputs), inputs, FAST)
    for seed in (0, 1):
        torch.manual_seed(seed)
        expected, state = fn(*inputs), torch.get_rng_state()
        torch.manual_seed(seed)
        assert_equal(compiled(*inputs), expected)
        assert torch.equal(torch.get_rng_state(), state)
    return compiled


@pytest.mark.parametrize("shape", [(1,), (2047,), (64, 64), (3, 5, 1021), (0, 4)])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
def test_dropout_draws_what_eager_draws(shape, p):
    x = torch.ones(shape)
    same_as_eager(lambda x: (F.dropout(x, p), F.dropout(x * 2, 0.3), torch.rand(3)), x)


def test_an_odd_number_of_words_before_it():
    x = torch.ones(5000)
    same_as_eager(lambda x: (torch.rand(3), F.dropout(x), torch.rand(1), F.dropout(x)), x)


def test_other_dtypes_stay_with_aten():
    x = torch.ones(64, 64, dtype=torch.float64)
    compiled = same_as_eager(lambda x: (F.dropout(x),), x)
    assert "= bernoulli(" not in compiled.lowered.host


def numpy_words(state, count):
    """The next words after a serialised state of torch's generator, by NumPy's MT19937."""
    fields = state.numpy()
    twister = np.random.MT19937()
    key = fields[24 : 24 + 624 * 8].view(np.uint64).astype(np.uint32)
    left, position = fields[8:12].view(np.int32)[0], int(fields[16:24].view(np.uint64)[0])
    inner = {"key": key, "pos": 624 if left == 1 else position}
    twister.state = {"bit_generator": "MT19937", "state": inner}
    return twister.random_raw(count).astype(np.uint64)


@pytest.mark.parametrize("count", [1, 311, 312, 313, 4999])
@pytest.mark.parametrize("p", [0.0, 0.25, 0.9, 1.0])
def test_words_are_those_of_numpys_twister(draw, count, p):
    torch.manual_seed(7)
    torch.rand(3)
    state = torch.get_rng_state()
    words = numpy_words(state, 2 * count + 4)
    fractions = ((words[0::2] << np.uint64(32)) | words[1::2]) & np.uint64(2**53 - 1)
    out = torch.empty(count)
    draw(state.data_ptr(), out.data_ptr(), count, threshold(p))
    assert (out.numpy() == (fractions[:count] * 2.0**-53 < p)).all()
    assert (numpy_words(state, 4) == words[2 * count :]).all()


def test_a_torch_that_draws_otherwise_keeps_its_own(draw):
    def other(state, out, count, _):
        ctypes.memset(out, 0, 4 * count)

    assert bernoulli(other) is torch.ops.aten.bernoulli.p
