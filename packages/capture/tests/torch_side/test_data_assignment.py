"""``tensor.data = ...`` in compiled functions: what the tensors hold, share and give to autograd afterwards."""

import random

import pytest
import torch
from test_relations import Counted

import fxstack_capture

STEPS = (
    "x.data = y",
    "x.data = y * 2",
    "y.data = x.data",
    "x.data = p.data",
    "x.data = x.data.t()",
    "y.data = y.data.double().float()",
    "t = x.data; x.data = y.data; y.data = t",
    "z = x + 1; z.data = y; out.append(z * 2)",
    "z = x + 1; z.data = z * 2; z.data = z * 2; out.append(z)",
    "z = y.sin(); out.append(z); z.data = x; z.data = z + 1; x.data = z; z.add_(1)",
    "p.data = y",
    "p.data = p.data * 0.5",
    "x.add_(1)",
    "y.mul_(2)",
    "p.data.add_(1)",
    "with torch.no_grad(): p.data = p * 2",
    "with torch.no_grad(): p.data = y; p.data += 1",
    "v = x[0]; v.add_(3)",
    "out.append(x + y)",
    "out.append(x[0])",
    "out.append(x)",
    "out.append(p.detach())",
    "out.append(p * x)",
    "out.append((p * p).sum())",
)


def made_of(steps):
    lines = "\n".join(f"    {step}" for step in steps)
    names = {"torch": torch}
    exec(f"def fn(x, y, p):\n    out = []\n{lines}\n    return out\n", names)
    return names["fn"]


def outcome(fn):
    """What the arguments and results hold, which of them share memory, and the gradients."""
    values = torch.arange(9.0).reshape(3, 3)
    given = [values.clone(), values.cos(), torch.nn.Parameter(values.sin())]
    tensors = given + fn(*given)
    losses = [tensor.sum() for tensor in tensors[3:] if tensor.requires_grad]
    try:
        sum(losses, given[2].sum()).backward()
    except RuntimeError as error:  # a saved tensor was changed in place
        return str(error)
    storages = [tensor.untyped_storage()._cdata for tensor in tensors]
    facts = [(t.tolist(), t.stride(), t.dtype, t.requires_grad, t.is_leaf) for t in tensors]
    return facts, [storages.index(s) for s in storages], given[2].grad.tolist()


@pytest.mark.parametrize("seed", range(16))
def test_random_programs(seed):
    pick = random.Random(seed)
    fn = made_of(pick.choices(STEPS, k=5))
    compiled = fxstack_capture.optimize()(fn)
    for _ in range(2):
        assert outcome(compiled) == outcome(fn)


@pytest.mark.parametrize(
    "steps",
    [
        ("x.data = y", "out.append(x * 2)"),
        ("x.data = x.data.half()", "out.append(x * 2)"),
        ("t = x.data; x.data = y.data; y.data = t", "out.append(x - 2 * y)"),
        ("p.data = p.data * 0.5", "out.append(p * x)"),
        ("with torch.no_grad(): p.data = p.clamp(0, 0.5)", "out.append(p * x)"),
        ("out.append(p.detach())", "p.data = y", "p.data = x", "out.append(p * 2)"),
        ("z = x + 1", "z.data = y", "out.append(z * 2)"),
    ],
)
def test_one_graph(steps):
    fn = made_of(steps)
    assert outcome(fxstack_capture.optimize(fullgraph=True)(fn)) == outcome(fn)


def test_a_method_of_a_function_keeps_its_assignment():
    class Doubling(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            y.data = y.data * 2
            return x * y

        @staticmethod
        def backward(ctx, gradient):
            return gradient, None

    counted = Counted(lambda x, y: Doubling.apply(x, y) + 1)
    counted.check(lambda: (torch.ones(3, requires_grad=True), torch.ones(3)))
