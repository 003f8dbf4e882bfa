"""Representative programs at the options that users get: the highest optimisation shows faults that others hide.

All programs become one file of kernels, so that the compiler runs once.
"""

import pytest
import torch
import torch.nn.functional as F
from inductor_checks import assert_equal, copies, trace

import fxstack_inductor as fi

OPTIONS = fi.InductorOptions(use_cache=False)
INPUTS = (
    *torch.randn(2, 67, 129),
    torch.randn(2, 6, 19, 21),
    torch.randint(-50, 50, (67, 129)),
    torch.randint(0, 67, (40,)),
)

PROGRAMS = {
    "activations": lambda x, y: (F.gelu(x) * torch.sigmoid(y), F.silu(x + y), x.exp().log1p()),
    "rows": lambda x, y: (x.softmax(-1), F.layer_norm(x, (129,)), y.logsumexp(1), x.var(1)),
    "columns": lambda x, y: (x.sum(0), y.amax(0), (x * y).mean(0), x.softmax(0)),
    "whole": lambda x, y: (x.sum(), (x - y).square().mean(), x.amax(), y.prod()),
    "positions": lambda x, y: (x.argmax(1), y.max(0)[1], x.argmin(), (x > y).any(1)),
    "turned": lambda x, y: ((x.t() * 2).contiguous(), (y.t().double() + 1).contiguous()),
    "halves": lambda x, y: (
        (x.bfloat16() * y.bfloat16()).relu(),
        (x.half() + 1).t().contiguous(),
        x.bfloat16().softmax(-1),
    ),
    "joined": lambda x, y: (torch.cat([x, y, x * 2], 1), F.pad(x, (1, 2, 3, 0)), x.roll(3, 1)),
    "images": lambda image: (
        F.max_pool2d(image, 3, 2, 1),
        F.avg_pool2d(image, 2),
        F.interpolate(image, scale_factor=2),
    ),
    "whole numbers": lambda whole: (
        (whole * 3).to(torch.int8).sum(0),
        whole.to(torch.uint8) + (whole > 0),
        torch.div(whole, 7, rounding_mode="floor"),
        whole.abs().amax(1),
    ),
    "looked up": lambda x, rows: (x[rows], F.embedding(rows, x), x.gather(0, rows[:, None].expand(40, 129))),
    "scattered": lambda x, rows: (
        x.index_add(0, rows, x[:40] * 2),
        x.scatter_reduce(0, rows[:, None].expand(40, 129), x[:40], "amax"),
        x.scatter(1, rows[None].expand(67, 40), x[:, :40]),
        x.bfloat16().index_put((rows,), x[:40].bfloat16(), accumulate=True),
    ),
    "running": lambda x, y: (
        x.cumsum(1),
        (x * y).cumsum(0) + 1,
        x.logcumsumexp(1),
        *x.cummax(0),
        y.double().cumprod(1) / y.double().sum(1, keepdim=True),
    ),
}


def run(name, x, y, image, whole, rows):
    given = {"images": (image,), "whole numbers": (whole,), "looked up": (x, rows), "scattered": (x, rows)}
    return PROGRAMS[name](*given.get(name, (x, y)))


@pytest.fixture(scope="module")
def results():
    """What one compiled graph gives for every program."""

    def everything(*inputs):
        return tuple(result for name in PROGRAMS for result in run(name, *inputs))

    flat = fi.compile_graph(trace(everything, *INPUTS), INPUTS, OPTIONS)(*copies(INPUTS))
    rest = iter(flat)
    return {name: [next(rest) for _ in run(name, *INPUTS)] for name in PROGRAMS}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(results, name):
    assert_equal(results[name], list(run(name, *INPUTS)))
