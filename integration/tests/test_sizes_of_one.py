"""Parts of a tensor that have one row for some sizes are broadcast then, as in eager, though their size is a formula."""

import pytest
import torch
import torch.nn.functional as F

import fxstack

PARTS = {
    "chunk": lambda x: x.chunk(2)[-1],
    "slice": lambda x: x[2:],
    "from the end": lambda x: x[-1:],
    "step": lambda x: x[::3],
    "half": lambda x: x[: x.shape[0] // 2],
    "narrow": lambda x: x.narrow(0, 1, x.shape[0] - 1),
    "windows": lambda x: x.unfold(0, 3, 2)[..., 0],
    "pool": lambda x: F.max_pool1d(x.T[None], 2)[0].T,
    "average": lambda x: F.avg_pool1d(x.T[None], 3, 2, 1)[0].T,
    "rows": lambda x: x.reshape(-1, x.shape[0], 4)[:, 0],
    "split": lambda x: x.split(2)[-1],
}
USES = {
    "add": lambda p, x: p + x,
    "after a product": lambda p, x: p * 2 + x,
    "where": lambda p, x: torch.where(p > 0, p, x),
    "summed": lambda p, x: (p.sin() * x).sum(0),
    "matrix": lambda p, x: torch.matmul(p[:, None], x[:, :, None]),
    "expand": lambda p, x: p.expand_as(x) + 1,
    "changed": lambda p, x: x.clone().mul_(p),
}


def outcome(fn, x):
    try:
        return fn(x.clone())
    except (RuntimeError, IndexError, ValueError) as error:
        return type(error)


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_broadcast(part, use):
    def program(x):
        return use(part(x), x)

    compiled = fxstack.compile(program, dynamic=True)
    for rows in (3, 5, 2, 4, 1, 3, 0):
        x = torch.randn(rows, 4)
        ours, eager = outcome(compiled, x), outcome(program, x)
        if isinstance(eager, type) or isinstance(ours, type):
            assert ours is eager, rows
        else:
            torch.testing.assert_close(ours, eager)
            assert ours.stride() == eager.stride()
