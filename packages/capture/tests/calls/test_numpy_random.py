# ruff: noqa: NPY002 - the global generator is what this is about
"""NumPy's random numbers are drawn by NumPy before the graph, in order: one graph, and eager's numbers."""

import random

import numpy as np
import pytest
import torch

import fxstack_capture as fx

X = torch.arange(3.0)


def seeds(x):
    np.random.seed(3)
    first = np.random.rand(2)
    np.random.seed(x.shape[0])
    return first, np.random.rand(2), x + 1


def shuffles(x):
    rows, items = np.arange(6.0).reshape(3, 2), np.arange(5)
    np.random.shuffle(rows)
    np.random.shuffle(items)
    return rows, items, np.random.rand(1), x + 1


def shuffles_an_input(array):
    np.random.shuffle(array)
    return array + 1


PROGRAMS = {
    "rand": lambda x: x * torch.from_numpy(np.random.rand(3)),
    "randn": lambda x: torch.tensor(np.random.randn(2, 3)) + x,
    "randint": lambda x: (np.random.randint(0, 10, size=(3,)), x + np.random.randint(0, 10)),
    "dtype": lambda x: (np.random.randint(0, 10, 3, dtype=np.int32), x + 1),
    "uniform": lambda x: x * np.random.uniform() + torch.from_numpy(np.random.uniform(0, 2, size=3)),
    "normal": lambda x: x * np.random.normal(1.0, 2.0) + torch.from_numpy(np.random.normal(size=3)),
    "distributions": lambda x: (np.random.poisson(3.0, 4), np.random.gamma(2.0, 1.0, (2, 2)), x + 1),
    "choice": lambda x: (np.random.choice(5, 3, replace=False), np.random.choice([1.5, 2.5], 4), x + 1),
    "choice_of_an_array": lambda x: (np.random.choice(np.arange(5.0), (2, 2)), x + 1),
    "permutation": lambda x: (np.random.permutation(4), x + 1),
    "permutation_of_an_array": lambda x: (np.random.permutation(np.arange(6.0).reshape(3, 2)), x + 1),
    "of_sizes": lambda x: x * torch.from_numpy(np.random.rand(*x.shape)),
    "no_dimension": lambda x: (np.random.random(()), np.random.sample(2), x + 1),
    "mask": lambda x: x * torch.from_numpy((np.random.rand(3) > 0.5).astype(np.float32)),
    "beside_other_generators": lambda x: x * random.random() + np.random.rand() + torch.rand(3),
    "seeds": seeds,
    "shuffles": shuffles,
}


def outcomes(fn, *args):
    """What three calls give, and where the generator is afterwards."""
    np.random.seed(0)
    random.seed(0)
    torch.manual_seed(0)
    return [fn(*args) for _ in range(3)], np.random.rand()


def one_graph(fn):
    graphs = []

    def count(module, _inputs):
        graphs.append(module)
        return module

    return fx.optimize(count, fullgraph=True)(fn), graphs


@pytest.mark.parametrize("name", PROGRAMS)
def test_draws_of_numpy_in_one_graph(name):
    compiled, graphs = one_graph(PROGRAMS[name])
    torch.testing.assert_close(
        outcomes(compiled, X), outcomes(PROGRAMS[name], X), rtol=0, atol=0, check_stride=True
    )
    assert len(graphs) == 1


def test_an_input_is_shuffled_in_place():
    given, expected = np.arange(7.0), np.arange(7.0)
    compiled, graphs = one_graph(shuffles_an_input)
    found = outcomes(compiled, given)
    torch.testing.assert_close(found, outcomes(shuffles_an_input, expected))
    assert given.tolist() == expected.tolist()
    assert len(graphs) == 1


def test_examples_do_not_draw():
    compiled = fx.optimize(fullgraph=True)(lambda x: x + np.random.rand())
    np.random.seed(0)
    compiled(X)
    found = np.random.rand()
    np.random.seed(0)
    np.random.rand()
    assert found == np.random.rand()


def branches(x):
    return x + 1 if np.random.rand() < 0.5 else x - 1


def draws_from_a_generator(x):
    return x + np.random.default_rng(0).random()


def raises(x):
    return x + np.random.randint(10, 0)


@pytest.mark.parametrize("program", [branches, draws_from_a_generator, raises])
def test_others_break_the_graph(program):
    with pytest.raises(fx.Unsupported):
        fx.optimize(fullgraph=True)(program)(X)


def test_a_break_keeps_the_order():
    compiled = fx.optimize()(branches)
    assert str(outcomes(compiled, X)) == str(outcomes(branches, X))
