"""Operators on lists of tensors, decomposed: the same results as torch's own, and none of them left in a graph."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor import decompositions
from fxstack_inductor.lower.decompositions.foreach import foreach_rules


def lists(count, shape=(3, 4)):
    return [[torch.rand(shape) + 0.1 for _ in range(2)] for _ in range(count)]


A, B, C = lists(3)
CALLS = {
    "add.List": lambda f: f(A, B, alpha=2),
    "add.Tensor": lambda f: f(A, torch.tensor(2.0), alpha=3),
    "sub.List": lambda f: f(A, B, alpha=2),
    "mul.Tensor": lambda f: f(A, torch.tensor(2.0)),
    "div.Tensor": lambda f: f(A, torch.tensor(2.0)),
    "pow.ScalarAndTensor": lambda f: f(2.0, A),
    "lerp.List": lambda f: f(A, B, C),
    "lerp.Scalar": lambda f: f(A, B, 0.3),
    "lerp.ScalarList": lambda f: f(A, B, [0.3, 0.6]),
    "addcmul.Scalar": lambda f: f(A, B, C, 0.5),
    "addcdiv.Scalar": lambda f: f(A, B, C),
    "addcmul.ScalarList": lambda f: f(A, B, C, [0.5, 2.0]),
    "addcdiv.ScalarList": lambda f: f(A, B, C, [0.5, 2.0]),
    "norm.Scalar": lambda f: f(A, 2, torch.float64),
    "copy.default": lambda f: f(A, B),
    "maximum.Scalar": lambda f: f(A, 0.5),
    "minimum.ScalarList": lambda f: f(A, [0.5, float("nan")]),
}


def found():
    return {str(op)[len("aten._foreach_") :]: op for op in foreach_rules()}


def call_of(name):
    base, _, overload = name.partition(".")
    plain = {"List": (A, B), "Scalar": (A, 0.5), "ScalarList": (A, [0.5, 2.0]), "default": (A,)}
    return CALLS.get(name) or (lambda f: f(*plain[overload]))


@pytest.mark.parametrize("name", found())
def test_results_are_torch_s(name):
    operator, call = found()[name], call_of(name)
    graph = make_fx(lambda: call(operator), decomposition_table=decompositions())()
    assert not [n for n in graph.graph.nodes if "_foreach_" in str(n.target)]
    torch.testing.assert_close(graph(), call(operator), rtol=1e-6, atol=0, equal_nan=True)


def test_most_are_there():
    assert len(found()) > 60
