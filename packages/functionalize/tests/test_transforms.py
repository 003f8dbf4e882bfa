"""Compiled graphs under function transforms, forward-mode AD and anomaly mode, and inputs of unusual kinds."""

import pytest
import torch
from compare import compiled, refuses
from test_semantics import leaf
from torch.autograd import forward_ad


def fn(x):
    return (x.sin() * x,)


def never(*args):
    raise AssertionError("a compiled graph cannot take these tensors")


def for_dense(grad):
    """Compiled for a dense tensor, by a compiler whose code must not run."""
    return compiled(fn, (leaf(3, grad=grad),), compiler=lambda module, inputs: never)


@pytest.mark.parametrize("grad", [True, False])
def test_forward_mode(grad):
    tangents = []
    for f in (for_dense(grad), fn):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(leaf(3, grad=grad), torch.full((3,), 2.0))
            tangents.append(forward_ad.unpack_dual(f(dual)[0]).tangent)
    torch.testing.assert_close(*tangents)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize(
    "transform",
    [
        lambda f: torch.vmap(lambda x: f(x)[0]),
        lambda f: torch.func.grad(lambda x: f(x)[0].sum()),
        lambda f: torch.func.jacrev(lambda x: f(x)[0]),
        lambda f: torch.func.jacfwd(lambda x: f(x)[0]),
    ],
)
def test_transforms(transform, grad):
    shape = (3, 3) if "vmap" in transform.__code__.co_names else (3,)
    ours, eager = (transform(f)(leaf(*shape, grad=grad)) for f in (for_dense(grad), fn))
    torch.testing.assert_close(ours, eager)


def test_compilation_and_nan_in_anomaly_mode():
    with torch.autograd.set_detect_anomaly(mode=True):
        f = compiled(lambda x: ((x * 0).sqrt(),), (leaf(3),))
        with pytest.raises(RuntimeError, match="returned nan values"):
            f(torch.zeros(3, requires_grad=True))[0].sum().backward()


def test_quantized_and_nested_inputs_are_refused():
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    refuses(lambda x: (x.dequantize(),), lambda: (quantized,), "quantized tensor")
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(1)], layout=torch.jagged)
    refuses(lambda x: (x.sin(),), lambda: (nested,), "nested tensor")


def product(x, y):
    return (x @ y, x)


def test_sparse_inputs_pass_through():
    inputs = (torch.eye(3).to_sparse(), leaf(3, 3))
    dense, same = compiled(product, inputs)(*inputs)
    assert same is inputs[0]
    dense.sum().backward()
    assert torch.equal(inputs[1].grad, torch.ones(3, 3))
