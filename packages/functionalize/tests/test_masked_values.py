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

BESIDE = {
    "a column": ((6, 4), (ROWS, [1]), (3,)),
    "a column, one value": ((6, 4), (ROWS, [1]), ()),
    "a column each": ((6, 4), (ROWS, [1, 0, 1]), (3,)),
    "a column each, one value": ((6, 4), (ROWS, [1, 0, 3]), (1,)),
    "columns of one row": ((6, 4), (torch.arange(6) == 2, [1, 0, 3]), (3,)),
    "table": ((6, 4), (ROWS, [[1], [3]]), (2, 3)),
    "table, one value a row": ((6, 4), (ROWS, [[1], [3]]), (2, 1)),
    "before": ((4, 6, 2), ([2], ROWS), (3, 2)),
    "before, broadcast": ((4, 6, 2), ([2], ROWS), (2,)),
    "apart": ((6, 5, 4), (ROWS, slice(None), [1]), (3, 5)),
    "apart, broadcast": ((6, 5, 4), (ROWS, slice(None), [1]), (1, 5)),
    "behind a dimension": ((5, 6, 4, 2), (slice(None), ROWS, [1]), (5, 3, 2)),
    "behind a dimension, broadcast": ((5, 6, 4, 2), (slice(None), ROWS, [1]), (5, 1, 2)),
    "two masks": ((6, 4), (ROWS, torch.tensor([True, True, False, True])), (3,)),
    "two masks, one value": ((6, 4), (ROWS, torch.tensor([True, True, False, True])), ()),
    "two masks, one of one": ((6, 4), (ROWS, torch.arange(4) == 2), ()),
    "two masks, one of none": ((6, 4), (torch.arange(6) == 2, COLUMNS & ~COLUMNS), ()),
    "two dimensions": ((6, 4, 3), (ROWS[:, None] & COLUMNS, [2]), (6,)),
    "two dimensions, one value": ((6, 4, 3), (ROWS[:, None] & COLUMNS, [2]), (1,)),
    "none": ((6, 4), (ROWS & ~ROWS, [2]), (0,)),
    "none, one value": ((6, 4), (ROWS & ~ROWS, [2]), ()),
}
CASES |= {f"beside: {name}": case for name, case in BESIDE.items()}


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
