"""Scans by functions of single elements as kernels, beside torch's operator: C, and Triton through its interpreter."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import fxstack_inductor as fi
from fxstack_inductor.tiling import tiles as triton_tiles

SCAN = torch.ops.higher_order.associative_scan
FACTOR = torch.rand(5) + 0.5


def recurrence(a, b, c, d):
    return a * c, c * b + d


def segments(flag, a, starts, b):
    return flag | starts, torch.where(starts, b, a + b)


def softmax(m, s, n, t):
    most = torch.maximum(m, n)
    return most, s * (m - most).exp() + t * (n - most).exp()


def weighted(a, b, factor):
    return (a * factor.exp() * (b * torch.ones_like(b)),)


def rows(*shape, dtype=torch.float32):
    torch.manual_seed(len(shape))
    return torch.rand(shape, dtype=dtype) + 0.5


def over(fn, dim=0, further=0):
    """The scan along a dimension by ``fn``, which also takes the last ``further`` tensors."""

    def call(*inputs):
        xs, others = inputs[: len(inputs) - further], inputs[len(inputs) - further :]
        xs = [flipped(x.movedim(dim, 0)) for x in xs]
        return tuple(flipped(x) for x in SCAN(fn, xs, others))

    return call


def flipped(x):
    return ~x if x.dtype is torch.bool else x * 2


CASES = {
    "one tensor": (over(lambda a, b: (a * b + a + b,)), (rows(6, 5),)),
    "recurrence": (over(recurrence), (rows(6, 4, 5), rows(6, 4, 5))),
    "recurrence along rows": (over(recurrence, dim=2), (rows(4, 3, 6), rows(4, 3, 6))),
    "booleans": (over(segments), (rows(6, 5) > 1.2, rows(6, 5))),
    "softmax": (over(softmax), (rows(6, 5), rows(6, 5))),
    "half precision": (over(softmax), (rows(6, 5, dtype=torch.bfloat16), rows(6, 5, dtype=torch.bfloat16))),
    "another tensor": (over(weighted, further=1), (rows(6, 5), FACTOR)),
    "one position": (over(recurrence), (rows(1, 5), rows(1, 5))),
    "integers": (over(lambda a, b: (a * b + a + b,)), (torch.arange(12).reshape(6, 2),)),
}
TARGETS = {
    "c": fi.InductorOptions(optimization=1, use_cache=False),
    "triton": fi.InductorOptions(target="cuda"),
}


def check(fn, inputs, options, mode="fake"):
    """Compile ``fn``, compare with torch's operator, and demand that no call of the operator is left."""
    graph = make_fx(fn, decomposition_table=fi.decompositions(), tracing_mode=mode)(*inputs)
    compiled = fi.compile_graph(graph, inputs, options)
    tolerance = {"rtol": 0.02, "atol": 0.02} if inputs[-1].dtype is torch.bfloat16 else {}
    for got, wanted in zip(compiled(*inputs), fn(*inputs), strict=True):
        torch.testing.assert_close(got, wanted, **tolerance)
    assert not compiled.lowered.plan.program.fallbacks
    return compiled


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_values(name, target):
    fn, inputs = CASES[name]
    check(fn, inputs, TARGETS[target])


@pytest.mark.parametrize("target", TARGETS)
def test_both_results_take_one_kernel(target):
    fn, inputs = CASES["recurrence"]
    compiled = check(fn, inputs, TARGETS[target])
    assert len(compiled.lowered.plan.steps) == 1


@pytest.mark.parametrize("name", ["recurrence along rows", "softmax", "booleans"])
def test_rows_of_several_tiles(name, monkeypatch):
    monkeypatch.setattr(triton_tiles, "PERSISTENT", 4)
    monkeypatch.setattr(triton_tiles, "TILE", 32)
    fn, _ = CASES[name]
    inputs = [rows(3, 2, 40) if name.endswith("rows") else rows(40, 3) for _ in range(2)]
    inputs[0] = inputs[0] > 1.2 if name == "booleans" else inputs[0] * 0.9
    compiled = check(fn, inputs, TARGETS["triton"])
    assert "for offset" in compiled.lowered.triton


@pytest.mark.parametrize("target", TARGETS)
def test_symbolic_sizes(target):
    fn, _ = CASES["recurrence"]
    check(fn, (rows(6, 5), rows(6, 5)), TARGETS[target], mode="symbolic")


@pytest.mark.parametrize("fn", [lambda a, b: (a + b.flip(0),), lambda a, b: (a + b.sum(),)])
def test_functions_of_other_elements_stay_calls(fn):
    graph = make_fx(over(fn), decomposition_table=fi.decompositions(), tracing_mode="fake")(rows(6, 5))
    compiled = fi.compile_graph(graph, [rows(6, 5)], TARGETS["c"])
    torch.testing.assert_close(compiled(rows(6, 5)), list(graph(rows(6, 5))))
    assert compiled.lowered.plan.program.fallbacks
