"""An index out of range in a frame with side effects: the handler sees eager's error, whatever the index is."""

import itertools

import pytest
import torch
from beside import breaks_beside_plain


def store(x, i):
    y = x.clone()
    y[i] = 1.0
    return y


READS = {
    "item": lambda x, i: x[i],
    "column": lambda x, i: x.expand(2, -1)[:, i],
    "behind an ellipsis": lambda x, i: x.expand(2, -1)[..., i, None],
    "second": lambda x, i: x.expand(2, -1)[1, i],
    "too many": lambda x, i: x[0, i],
    "store": store,
}
INDICES = {
    "numbers": (1, 7, 2, 3, -4, -3),
    "tensors": tuple(torch.tensor(i) for i in (1, 7, -9, 2)),
    "lists": (torch.tensor([1, 7]), torch.tensor([0, 2]), torch.tensor([-4])),
}


def _written(x):
    x.add_(1)


@pytest.mark.parametrize(
    ("read", "indices", "effect"), itertools.product(READS, INDICES, [_written, torch.Tensor.relu])
)
def test_handlers_see_errors_of_indices(read, indices, effect):
    read = READS[read]

    def program(x, i, log):
        log.append("before")
        effect(x)
        try:
            y = read(x, i)
        except IndexError as error:
            log.append(str(error))
            return x * 2
        return y, x + 1

    given = iter([index for index in INDICES[indices] for _ in range(2)])
    breaks_beside_plain(program, lambda: (torch.arange(3.0), next(given), []), calls=len(INDICES[indices]))
