"""What a program may assume of sizes under a contract, beside torch.export."""

import logging

import pytest
import torch
from torch import nn
from torch.export import Dim

import fxstack_capture as fx

B, C = Dim("b"), Dim("c")


def t(*shape):
    return torch.ones(shape)


def inner(x):
    return x.view(4, 3)


# (program, arguments, dynamic_shapes, what our error says; None: no error)
CASES = {
    "free": (lambda x: x.relu(), (t(4, 3),), {"x": {0: B}}, None),
    "same name": (lambda x, y: x + y, (t(4, 3), t(4, 3)), {"x": {0: B}, "y": {0: B}}, None),
    "named guides hinted": (lambda x, y: x + y, (t(4), t(4)), {"x": {0: B}, "y": {0: Dim.AUTO}}, None),
    "named guides dynamic": (lambda x, y: x + y, (t(4), t(4)), {"x": {0: Dim.DYNAMIC}, "y": {0: B}}, None),
    "auto specialises": (inner, (t(4, 3),), {"x": {0: Dim.AUTO}}, None),
    "dynamic may branch": (lambda x: x * 2 if x.shape[0] > 5 else x, (t(8),), {"x": {0: Dim.DYNAMIC}}, None),
    "in range": (lambda x: x * 2 if x.shape[0] > 5 else x, (t(8),), {"x": {0: Dim("b", min=6)}}, None),
    "derived": (lambda x, y: x[::2] + y, (t(8), t(4)), {"x": {0: 2 * B}, "y": {0: B}}, None),
    "derived alone": (lambda x: x.view(2, -1), (t(8, 3),), {"x": {0: 2 * B}}, None),
    "offset": (lambda x, y: x[1:] + y, (t(5), t(4)), {"x": {0: B + 1}, "y": {0: B}}, None),
    "specialised": (inner, (t(4, 3),), {"x": {0: B}}, "b == 4"),
    "dynamic specialised": (inner, (t(4, 3),), {"x": {0: Dim.DYNAMIC}}, "x.size(0) == 4"),
    "equal to a static one": (lambda x, y: x + y, (t(4), t(4)), {"x": {0: B}, "y": None}, "b == 4"),
    "equal names": (lambda x, y: x + y, (t(4), t(4)), {"x": {0: B}, "y": {0: C}}, "needs c == b"),
    "branch": (lambda x: x * 2 if x.shape[0] > 5 else x, (t(8),), {"x": {0: B}}, "Dim('b', min=6)"),
    "branch above": (lambda x: x * 2 if x.shape[0] < 99 else x, (t(8),), {"x": {0: B}}, "Dim('b', max=98)"),
    "divisible": (lambda x: x * 2 if x.shape[0] % 4 == 0 else x, (t(8),), {"x": {0: B}}, "4*_b"),
    "not as derived": (lambda x, y: x[::2] + y, (t(8), t(4)), {"x": {0: B}, "y": {0: C}}, "Dim('b', min=3)"),
    "two at once": (lambda x, y: x if len(x) > len(y) else y, (t(8), t(4)), {"x": {0: B}, "y": {0: C}}, "takes another path"),
}  # fmt: skip


class Program(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn


class One(Program):
    def forward(self, x):
        return self.fn(x)


class Two(Program):
    def forward(self, x, y):
        return self.fn(x, y)


def program(fn, args):
    return (One, Two)[len(args) - 1](fn)


def error_of(export, *args, **kwargs):
    logging.disable(logging.CRITICAL)  # torch writes its suggestions as errors
    try:
        export(*args, **kwargs)
    except fx.ShapeContractError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        logging.disable(logging.NOTSET)
    return None


@pytest.mark.parametrize("case", CASES)
def test_programs(case):
    fn, args, spec, words = CASES[case]
    found = error_of(fx.export, program(fn, args), args, dynamic_shapes=spec)
    assert found == words or (words in found and f'File "{__file__}", line ' in found)


BESIDE_TORCH = ["free", "named guides hinted", "derived alone", "specialised", "equal names", "branch"]  # fmt: skip


@pytest.mark.parametrize("case", BESIDE_TORCH)
def test_torch_export_agrees(case):
    fn, args, spec, words = CASES[case]
    theirs = error_of(torch.export.export, program(fn, args), args, dynamic_shapes=spec)
    assert (theirs is None) == (words is None)


def test_the_error_as_a_whole():
    found = error_of(fx.export, inner, (t(4, 3),), dynamic_shapes={"x": {0: B}})
    line = inner.__code__.co_firstlineno + 1
    assert found == (
        "the program does not keep to its shape contract:\n"
        "  b (x.size(0)) is a named dimension, but the program works only for b == 4, because of\n"
        "  Eq(3*x.size(0), 12)\n"
        f'  File "{__file__}", line {line}, in inner\n'
        "  fix: make this line work for other sizes, or write 4, Dim.STATIC or Dim.AUTO in the contract."
    )


def test_calls_of_what_was_exported():
    made = fx.export(lambda x: x * 2, (t(4, 3),), dynamic_shapes={"x": {0: Dim("b", max=8)}})
    assert torch.equal(made(t(7, 3)), t(7, 3) * 2)
    for wrong, words in ((t(9, 3), r"Dim\('b', max=8\)"), (t(7, 2), r"sizes is \(\*, 2\)")):
        with pytest.raises(fx.ShapeContractError, match=words):
            made(wrong)


def test_a_collection_of_shapes():
    x, shapes = t(4, 3), torch.export.ShapesCollection()
    shapes[x] = {0: B}
    made = fx.export(lambda x: x * 2, (x,), dynamic_shapes=shapes)
    assert made(t(6, 3)).shape == (6, 3)
