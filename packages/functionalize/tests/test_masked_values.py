"""Gradients of values that a mask puts into a tensor: of as many as the mask has places, or broadcast."""

import pytest
import torch
from compare import check, dynamic

ROWS = torch.tensor([True, False, True, True, False, False])
COLUMNS = torch.tensor([False, True, True, False])
CASES = {
    "rows": ((6, 4), ROWS, (3, 4)),
    "rows, one value each": ((6, 4), ROWS, (3, 1)),
    "rows, the same": ((6, 4), ROWS, (4,)),
    "one number": ((6, 4), ROWS, ()),
    "elements": ((6, 4), ROWS[:, None] & COLUMNS, (6,)),
    "columns": ((5, 4), (slice(None), COLUMNS), (5, 2)),
    "columns, the same": ((5, 4), (slice(None), COLUMNS), (2,)),
    "in the middle": ((2, 6, 4, 3), (slice(None), ROWS[:, None] & COLUMNS), (2, 6, 3)),
    "in the middle, broadcast": ((2, 6, 4, 3), (..., ROWS[:, None] & COLUMNS, slice(None)), (3,)),
    "of a part": ((5, 4), (slice(1, 4), COLUMNS), (3, 2)),
    "of none": ((6, 4), ROWS & ~ROWS, (0, 4)),
    "of one": ((6, 4), torch.arange(6) == 2, (1, 4)),
}


def made(*shapes):
    torch.manual_seed(0)
    return tuple(torch.randn(shape, requires_grad=True) for shape in shapes)


@pytest.mark.parametrize("examples", [list, dynamic])
@pytest.mark.parametrize("name", CASES)
def test_stores_equal_eager(name, examples):
    shape, where, values = CASES[name]

    def store(x, y):
        x = x * 2
        x[where] = y
        return (x.sin(),)

    check(store, lambda: made(shape, values), tol=1e-6, examples=examples)


@pytest.mark.parametrize("name", [name for name in CASES if torch.is_tensor(CASES[name][1])])
def test_sums_equal_eager(name):
    shape, where, values = CASES[name]

    def add(x, y):
        return ((x * 2).index_put((where,), y, accumulate=True).sin(),)

    check(add, lambda: made(shape, values), tol=1e-6)
