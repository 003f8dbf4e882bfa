"""Operators of torch's autocast lists, their in-place and out= forms, and layers built on them, beside eager."""

import pytest
import torch
from compare import check, compiled, refuses, tensors
from torch import nn
from torch.testing._internal.autocast_test_lists import AutocastCPUTestLists

torch.manual_seed(0)
LISTS = AutocastCPUTestLists("cpu")
GROUPS = (
    "torch_expect_builtin_promote torch_16 torch_fp32 nn_16 nn_fp32 torch_need_autocast_promote".split()  # noqa: SIM905
)
CASES = {f"{group}-{case[0]}": case for group in GROUPS for case in getattr(LISTS, group)}
NO_DERIVATIVE = {"torch_16-_native_multi_head_attention", "torch_16-_addmm_activation"}


def function_of(name):
    spaces = (torch, nn.functional, torch._C._nn)
    return next(getattr(space, name) for space in spaces if hasattr(space, name))


def under_autocast(fn, make, tol=0.0):
    with torch.autocast("cpu", torch.bfloat16):
        check(fn, make, tol=tol)


def leaves(args, *, trains):
    floats = [t.clone() for t in tensors(args)]
    return [t.requires_grad_(trains and t.dtype.is_floating_point) for t in floats]


@pytest.mark.parametrize("trains", [False, True], ids=["forward", "training"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_operators_of_the_lists(name, trains):
    function, args = CASES[name][0], CASES[name][1]
    kwargs = next((x for x in CASES[name][2:] if isinstance(x, dict)), {})
    args = args if isinstance(args, tuple) else (args,)
    called = function_of(function)

    def fn(*given):
        remaining = iter(given)
        filled = torch.utils._pytree.tree_map(
            lambda x: next(remaining) if isinstance(x, torch.Tensor) else x, args
        )
        return called(*filled, **kwargs)

    under_autocast(fn, lambda: leaves(args, trains=trains and name not in NO_DERIVATIVE))


def square(*sizes):
    return torch.randn(sizes or (4, 4))


WRITES = {
    "addmm_": (lambda a, b, c: a.addmm_(b, c), lambda: (square(), square(), square())),
    "baddbmm_": (lambda a, b, c: a.baddbmm_(b, c), lambda: [square(2, 4, 4) for _ in range(3)]),
    "addbmm_": (lambda a, b, c: a.addbmm_(b, c), lambda: (square(), square(2, 4, 4), square(2, 4, 4))),
    "addmv_": (lambda a, b, c: a.addmv_(b, c), lambda: (square(4), square(), square(4))),
    "addr_": (lambda a, b, c: a.addr_(b, c), lambda: (square(), square(4), square(4))),
    "mm-out": (lambda a, b, o: torch.mm(a, b, out=o), lambda: (square(), square(), square())),
    "matmul-out": (lambda a, b, o: torch.matmul(a, b, out=o), lambda: (square(), square(), square())),
    "bmm-out": (lambda a, b, o: torch.bmm(a, b, out=o), lambda: [square(2, 4, 4) for _ in range(3)]),
    "multi_dot-out": (
        lambda a, b, o: torch.linalg.multi_dot([a, b], out=o),
        lambda: (square(), square(), square()),
    ),
    "float_power_": (lambda a, b: a.double().float_power_(b), lambda: (square().abs(), square())),
    "iadd": (lambda a, b: a.__iadd__(a @ b), lambda: (square(), square())),
    "setitem": (lambda a, b: a.__setitem__(0, (a @ b)[0]), lambda: (square(), square())),
    "foreach": (lambda a, b: torch._foreach_add_([a], [b]), lambda: (square(), square())),
}


@pytest.mark.parametrize("name", sorted(WRITES))
def test_in_place_and_out_are_not_cast(name):
    under_autocast(*WRITES[name])


LAYERS = {
    "rnn": lambda: nn.RNN(4, 4, num_layers=2),
    "gru": lambda: nn.GRU(4, 4, bidirectional=True),
    "lstm-projected": lambda: nn.LSTM(4, 4, proj_size=3),
    "cells": lambda: nn.Sequential(nn.GRUCell(4, 4), nn.RNNCell(4, 4)),
    "attention": lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0),
    "convolution": lambda: nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(inplace=True), nn.Flatten(1)),
}


def of_weights(layer):
    """A function of ``x`` and the parameters of ``layer``, and what makes them."""
    names = [name for name, _ in layer.named_parameters()]

    def fn(x, *weights):
        return torch.func.functional_call(layer, dict(zip(names, weights, strict=True)), (x,))

    def make(x):
        return [x, *(p.detach().clone().requires_grad_() for p in layer.parameters())]

    return fn, make


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_layers(name):
    fn, make = of_weights(LAYERS[name]())
    x = torch.randn(3, 4) if name == "cells" else torch.randn(3, 2, 4)
    under_autocast(fn, lambda: make(x))


def test_an_lstm_in_training_has_the_dtype_of_onednns_layer():
    """Its steps compute in float32, as oneDNN's layer does. Eager needs a processor that oneDNN supports."""
    layer, x = nn.LSTM(4, 4, num_layers=2), torch.randn(30, 2, 4)
    fn, make = of_weights(layer)
    with torch.autocast("cpu", torch.bfloat16):
        ours = tensors(compiled(fn, make(x))(*make(x)))
    for mine, exact in zip(ours, tensors(layer(x)), strict=True):
        assert mine.dtype is torch.bfloat16
        assert mine.requires_grad
        torch.testing.assert_close(mine.float(), exact, rtol=0, atol=4e-3)


def test_bilinear_multiplies_in_the_dtype_of_autocast():
    under_autocast(nn.functional.bilinear, lambda: (square(), square(), square(3, 4, 4)))


def test_kernels_that_autocast_inside_are_refused():
    with torch.autocast("cpu", torch.bfloat16):
        refuses(lambda a: torch.linalg.pinv(a), lambda: (square(),), "is called under autocast")
    check(lambda a: torch.linalg.pinv(a), lambda: (square(),), tol=1e-5)
