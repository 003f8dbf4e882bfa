"""Backends that are wrong, that raise, and that want a frame to be skipped."""

import pytest
import torch

import fxstack_capture as fx

X = torch.ones(3)
VERIFY = fx.CaptureOptions(verify_correctness=True)


def off_by_one(graph_module, _):
    return lambda *args: tuple(out + 1 for out in graph_module(*args))


def other_type(graph_module, _):
    return lambda *args: tuple(out.double() for out in graph_module(*args))


def forgets_inputs(graph_module, _):
    return lambda *args: graph_module(*(a.clone() for a in args))


@pytest.mark.parametrize(
    ("backend", "text"),
    [
        (off_by_one, r"backend off_by_one compiled from .*<lambda>.* is wrong: .* first at \(0,\)"),
        (other_type, "is torch.float64, should be torch.float32"),
        (forgets_inputs, "l_x differs in 3 place"),
    ],
)
def test_wrong_code_is_named(backend, text):
    with pytest.raises(fx.WrongResultError, match=text):
        fx.optimize(backend, options=VERIFY)(lambda x: x.mul_(3) * 2)(X.clone())


def test_right_code_passes_with_random_numbers_mutation_and_gradients():
    weight = torch.ones(3, requires_grad=True)
    fn = lambda x: (x.mul_(2) + torch.rand(3) * weight).sum()
    torch.manual_seed(0)
    expected = fn(X.clone())
    torch.manual_seed(0)
    found = fx.optimize(options=VERIFY)(fn)(X.clone())
    assert torch.equal(found, expected)
    found.backward()
    assert weight.grad is not None


def test_skipped_frames_run_plainly():
    def skipping(_, __):
        raise fx.SkipFrame("too small")

    assert torch.equal(fx.optimize(skipping)(lambda x: x * 2)(X), X * 2)


def test_a_backend_that_raises_is_named():
    def broken(_, __):
        raise LookupError("no kernel")

    with pytest.raises(fx.BackendError, match=r"broken failed .*<lambda> .*LookupError: no kernel"):
        fx.optimize(broken)(lambda x: x * 2)(X)
