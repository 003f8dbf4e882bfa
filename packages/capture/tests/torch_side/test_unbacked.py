"""Numbers and sizes that depend on data, captured as unbacked symbols where asked for."""

from __future__ import annotations

import warnings

import pytest
import torch

import fxstack_capture
from fxstack_capture import CaptureOptions

SCALARS = {"capture_scalar_outputs": True}
SIZES = {"capture_dynamic_output_shape_ops": True, "capture_scalar_outputs": True}


def item(x):
    return x * x.sum().item()


def item_int(x):
    n = x.long().sum().item()
    torch._check(n >= 2)
    torch._check(n < 100)
    return torch.zeros(n) + n


def conversions(x):
    return x * float(x.sum()) + int(x.long().sum())


def tolist(x):
    a, b, c = x.long().tolist()
    return x * a + b - c


def nonzero(x):
    return x.nonzero().float() * 2


def masked(x):
    y = x[x > 1]
    return y + y.shape[0]


def branch(x):
    if x.sum().item() > 3:
        return x + 1
    return x - 1


PROGRAMS = {
    "item": (item, SCALARS, 1),
    "item_int": (item_int, SCALARS, 1),
    "conversions": (conversions, SCALARS, 1),
    "tolist": (tolist, SCALARS, 1),
    "nonzero": (nonzero, SIZES, 1),
    "masked": (masked, SIZES, 1),
    "branch": (branch, SCALARS, None),
    "item_off": (item, {}, None),
    "nonzero_off": (nonzero, {}, None),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_eager(name):
    fn, options, count = PROGRAMS[name]
    graphs = []
    compiled = fxstack_capture.optimize(
        lambda gm, _: (graphs.append(gm), gm)[1], options=CaptureOptions(**options)
    )(fn)
    for x in (torch.tensor([1.0, 2.0, 3.0]), torch.tensor([5.0, 0.0, 1.0]), torch.tensor([0.0, 1.5, 1.0])):
        torch.testing.assert_close(compiled(x), fn(x), rtol=0, atol=0)
    assert count is None or len(graphs) == count


def test_assumptions_are_checked_when_the_graph_runs():
    compiled = fxstack_capture.optimize(options=CaptureOptions(**SCALARS))(item_int)
    compiled(torch.tensor([5.0, 5.0]))
    with pytest.raises(RuntimeError):
        compiled(torch.tensor([0.0, 1.0]))


def test_a_size_that_breaks_what_the_program_demands_is_eagers_error():
    def program(x):
        torch._check(x.shape[0] > 3)
        return x * 2 if x.shape[0] > 3 else x

    compiled = fxstack_capture.optimize()(program)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size, works in ((2, False), (5, True), (3, False), (9, True)):
            x = torch.ones(size)
            fxstack_capture.mark_unbacked(x, 0)
            if works:
                assert torch.equal(compiled(x), x * 2)
            else:
                with pytest.raises(RuntimeError, match="Expected cond to be True"):
                    compiled(x)


def _with_shape_ids(mark, *sizes):
    tensors = [torch.arange(3.0 * size).view(size, 3) for size in sizes]
    for tensor in tensors:
        mark(tensor, 0, shape_id="batch")
    return tensors


@pytest.mark.parametrize("mark", [fxstack_capture.mark_unbacked, torch._dynamo.decorators.mark_unbacked])
def test_sizes_with_one_shape_id_are_equal(mark):
    graphs = []

    def backend(graph_module, _inputs):
        graphs.append(graph_module)
        return graph_module.forward

    def program(x, y):
        return (x * 2).sum(0) + y.sum(0), x.shape[0] == y.shape[0]

    compiled = fxstack_capture.optimize(backend, fullgraph=True)(program)
    for size in (4, 5, 1, 0):
        total, same = compiled(*_with_shape_ids(mark, size, size))
        assert torch.equal(total, program(*_with_shape_ids(mark, size, size))[0])
        assert same is True
    for sizes in ((4, 5), (4, 1)):
        with pytest.raises(RuntimeError, match="Runtime assertion failed"):
            compiled(*_with_shape_ids(mark, *sizes))
    assert len(graphs) == 1


@pytest.mark.parametrize(
    "number",
    [
        lambda y: float(y.sum() > 0),
        lambda y: 1.0 - float((y > 0).all().item()),
        lambda y: float((y.sum() > 0).item() == True),  # noqa: E712 - the comparison is the test
    ],
)
def test_the_bool_in_a_tensor_is_a_float(number):
    fn = lambda y: y * number(y)
    compiled = fxstack_capture.optimize(
        lambda graph, _: graph.forward, options=CaptureOptions(fullgraph=True, **SCALARS)
    )(fn)
    for value in (1.0, 9.0, -1.0):
        y = torch.full((3,), value)
        torch.testing.assert_close(compiled(y), fn(y))
