"""Which products become kernels by predicted times: parts of two schedules are compared."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor import InductorOptions, decompositions, lower
from fxstack_inductor.autotune.selection import AROUND
from fxstack_inductor.schedule.steps import show_plan

F = torch.nn.functional


def empty(*shape):
    return torch.empty(*shape, dtype=torch.bfloat16)


def lowered(fn, *inputs, templates=True):
    graph = make_fx(fn, decomposition_table=decompositions(), tracing_mode="fake")(*inputs)
    return lower(graph, options=InductorOptions(templates=templates), target="cuda:sm_90")


def refusals(fn, *inputs):
    return {name: refusal for name, other, refusal in lowered(fn, *inputs).plan.refusals if other == AROUND}


def gated(x, w, v):
    return F.silu(x @ w) * (x @ v)


def residual_norm(x, w, y, s):
    z = x @ w + y
    return z, z * torch.rsqrt(z.float().square().mean(-1, keepdim=True)) * s


def gated_gradients(w, v, g, u):
    """The gradients of the two products of a gated layer, and of its last weight."""
    down, s = g @ w, torch.sigmoid(v)
    return down * s * v * (1 + s), (u * s * v).t() @ g, down * u


ROWS = empty(128, 192)
CASES = {
    "a gelu needs a launch of its own": (lambda x, w: F.gelu(x @ w), (ROWS, empty(192, 768)), 1),
    "a norm takes the residual sum": (residual_norm, (ROWS, empty(192, 192), ROWS, empty(192)), 0),
    "one of two products takes the gate": (gated, (ROWS, empty(192, 768), empty(192, 768)), 1),
    "large tiles of a deep product ask for too much": (
        gated,
        (empty(4096, 2048), empty(2048, 8192), empty(2048, 8192)),
        0,
    ),
    "a shallow product saves the bytes": (
        lambda x, w: (x @ w).relu(),
        (empty(8192, 256), empty(256, 4096)),
        1,
    ),
    "a softmax takes the scale": (lambda x, w: (x @ w * 2).softmax(-1), (ROWS, empty(192, 768)), 0),
    "a sum of rows takes the relu": (lambda x, w: (x @ w).relu().sum(1), (ROWS, empty(192, 768)), 0),
    "an operation in front of the product": (lambda x, w: (x.relu() + 2) @ w, (ROWS, empty(192, 64)), 1),
    "gradients of a gated layer": (
        gated_gradients,
        (empty(192, 768), empty(128, 768), ROWS, empty(128, 768)),
        2,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_kernels(name):
    fn, inputs, count = CASES[name]
    assert lowered(fn, *inputs).triton.count("tl.dot(") == count


@pytest.mark.parametrize("name", CASES)
def test_no_more_launches_than_with_calls(name):
    fn, inputs, _ = CASES[name]
    ours, calls = (lowered(fn, *inputs, templates=on) for on in (True, False))
    assert len(ours.plan.steps) <= len(calls.plan.steps)
    assert sum(c.seconds for c in ours.predict()) <= sum(c.seconds for c in calls.predict()) * 1.02


def test_the_report_states_the_figures():
    fn, inputs, _ = CASES["a norm takes the residual sum"]
    (refusal,) = refusals(fn, *inputs).values()
    assert refusal.rule == "other kernels take the operations"
    assert "us with the library's call" in refusal.detail
    assert f"mm with {AROUND}: {refusal.rule} (predicted:" in show_plan(lowered(fn, *inputs).plan)


def test_the_report_states_the_best_case():
    fn, inputs, _ = CASES["large tiles of a deep product ask for too much"]
    assert {refusal.rule for refusal in refusals(fn, *inputs).values()} == {
        "slower than the library's call and another kernel"
    }


def test_a_product_alone_is_not_named():
    assert not refusals(lambda x, w: x @ w, ROWS, empty(192, 64))
