"""Functions in C that meet sizes: one graph for all sizes, and eager's results and errors."""

import collections
import math
import operator
from typing import NamedTuple

import pytest
import torch
from counting import Counting

import fxstack_capture as fx


class Pair(NamedTuple):
    rows: int
    columns: int


class Fields:
    """Its length is what ``of`` makes of a tensor."""

    def __init__(self, tensor, of):
        self.tensor, self.of = tensor, of

    def __len__(self):
        return self.of(self.tensor)


class Longer(list):
    def __len__(self):
        return super().__len__() + 5


def results(fn):
    """What ``fn`` gives for four sizes: (strides, numbers), or the kind and text of an error."""
    for rows, columns in [(2, 18), (3, 8), (4, 10), (7, 15)]:
        try:
            value = fn(torch.ones(rows, columns))
        except Exception as error:
            yield type(error), str(error)
        else:
            yield value.stride(), value.tolist()


def graphs(program):
    backend = Counting()
    compiled = fx.optimize(backend)(program)
    assert list(results(compiled)) == list(results(program))
    return len(backend.graphs)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x * len(x.shape),
        lambda x: x * len(x.size()[:-1]),
        lambda x: x * len(Pair(*x.shape)),
        lambda x: x * len(collections.deque(x.shape)),
        lambda x: x * len(collections.OrderedDict(rows=x.shape[0])),
        lambda x: x * len(Longer(x.shape)),
        lambda x: x.new_ones(len(Fields(x, lambda x: x.shape[0])) + 1),
        lambda x: x.reshape(x.shape.numel()),
        lambda x: x * math.prod(x.shape),
        lambda x: x * math.prod((s + 1 for s in x.shape), start=2),
        lambda x: x.new_ones(math.ceil(x.shape[0] / 4) * 4),
        lambda x: x * math.floor(x.shape[0] * 0.7) + math.trunc(x.shape[1] * -0.7),
        lambda x: x[:, : operator.index(x.shape[0])],
        lambda x: x * divmod(-x.shape[0], 3)[1] + divmod(100, x.shape[1])[0],
        lambda x: x * round(x.shape[0]),
        lambda x: x * (3 if callable(x.shape[0]) else 2),
    ],
)
def test_one_graph_for_all_sizes(program):
    assert graphs(program) == 2  # the static one and the dynamic one


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x * round(x.shape[1], -1),
        lambda x: x * round(x.shape[1] / 3, 1),
        lambda x: x * divmod(x.shape[0], True)[0],
        lambda x: x * divmod(x.shape[0], 2.5)[1],
        lambda x: x * divmod(x.shape[0], x.shape[0] - x.shape[0])[1],
        lambda x: x * divmod(x.shape[0]),
        lambda x: x * operator.index(x.shape[0] / 2),
        lambda x: x * x.shape.numel(3),
        lambda x: x * len(x.shape[0]),
        lambda x: x * len(Fields(x, lambda x: -x.shape[0])),
        lambda x: x * len(Fields(x, lambda x: x.shape[0] / 2)),
        lambda x: x * len(collections.OrderedDict([(x.shape[0], 1), (x.shape[0] + 0, 2)])),
        lambda x: x * math.prod(3),
        lambda x: x * math.ceil("a"),
    ],
)
def test_what_needs_the_number_itself(program):
    assert graphs(program) in {0, 4}


SIZES_IN = [5, 7]


def filled_before(x):
    SIZES_IN[:] = [x.shape[0], x.shape[1]]
    return x * torch.tensor(SIZES_IN).sum()


def changed_after(x):
    sizes = [x.shape[0], 2]
    made = torch.tensor(sizes)
    sizes.append(3)
    made[0] += 1
    return made * x.sum().long()


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x * torch.tensor(x.shape)[1],
        lambda x: torch.tensor([s for s in x.shape]) * x.sum().long(),
        lambda x: torch.as_tensor((x.shape[0], 2), device="cpu") * x.sum().long(),
        lambda x: torch.tensor([x.shape[0] / 3, 2]) * x.sum(),
        lambda x: torch.tensor([x.shape[0] / 3, x.shape[1]], dtype=torch.float64) * x.sum(),
        lambda x: torch.tensor([x.shape[0], 2.0], requires_grad=True).detach() * x.sum(),
        filled_before,
        changed_after,
    ],
)
def test_tensors_of_sizes_need_one_graph(program):
    assert graphs(program) == 2


@pytest.mark.parametrize(
    "data",
    [
        lambda x: ([x.shape[0], True],),
        lambda x: ([x.shape[0], 2], float),
        lambda x: (x.shape[0], float),
        lambda x: (x.shape[0], "a"),
        lambda x: ([x.shape[0], 2.5], torch.int64),
        lambda x: ([x.shape[0] * 100], torch.int8),
        lambda x: ([x.shape[0], 2**60 + 1],),
        lambda x: ([x.shape[0], 2**70],),
        lambda x: ([x.shape[0] * 2**70],),
        lambda x: ([x.shape[0], 2j],),
        lambda x: ([x.shape[0], [1]],),
        lambda x: ([x.shape[0], "a"],),
    ],
)
def test_other_lists_are_torchs(data):
    def program(x):
        values, *dtype = data(x)
        return torch.tensor(values, dtype=dtype[0] if dtype else None) * x.sum().long()

    assert graphs(program) != 2  # not one for all sizes


def test_a_truth_that_the_graph_has_settled_is_a_constant():
    compiled = fx.optimize(dynamic=True, fullgraph=True)(
        lambda x, y: (x @ y, x.shape[1] == y.shape[0], x.shape[0] == y.shape[1])
    )
    for n, m, k in ((2, 3, 4), (5, 7, 6), (4, 3, 4)):
        found = compiled(torch.ones(n, m), torch.ones(m, k))
        assert found[0].shape == (n, k)
        assert found[1:] == (True, n == k)
