"""Numbers of a native host program are exactly those of Python, for all values and types, and raise Python's errors."""

import itertools
import math
import operator

import numpy as np
import pytest
import torch
from inductor_checks import FAST
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, GraphModule
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import fxstack_inductor as fi
from fxstack_inductor.codegen.host.native_numbers import OPERATIONS

FLOATS = (
    0.0,
    -0.0,
    1.5,
    -2.25,
    0.1,
    math.inf,
    -math.inf,
    math.nan,
    5e-324,
    1e308,
    1e-200,
    2.0**53 + 2,
    700.0,
)
OTHERS = (True, 3, -7, 2**53 + 1, 2**62, 2**70, np.float64(0.1), np.float64(0.0))
CONSTANTS = (2, 0.5, -1.0, True, 2**53 + 1, math.inf)
UNARY = [op for op in OPERATIONS if op not in {operator.pow, math.pow, torch.sym_max, torch.sym_min}]
UNARY = [op for op in UNARY if getattr(op, "__name__", "") not in {"add", "sub", "mul", "truediv"}]
BINARY = [op for op in OPERATIONS if op not in UNARY]
X = torch.arange(1.0, 5.0)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's warnings


def compiled(target, *args):
    """``target`` of the numbers a and b (``args`` names them, or are constants), and x times the result."""
    env, graph = ShapeEnv(), Graph()
    with FakeTensorMode(shape_env=env) as mode:
        fake = mode.from_tensor(X, static_shapes=True)
        given = {name: graph.placeholder(name) for name in "xab"}
        given["x"].meta["val"] = fake
        for name in "ab":
            given[name].meta["val"] = env.create_unbacked_symfloat()
        number = graph.call_function(target, tuple(given.get(arg, arg) for arg in args))
        number.meta["val"] = env.create_unbacked_symfloat()
        scaled = graph.call_function(torch.ops.aten.mul.Scalar, (given["x"], number))
        scaled.meta["val"] = fake * 2.0
        graph.output((number, scaled))
    made = fi.compile_graph(GraphModule({}, graph), (), FAST, check_arguments=False)
    assert made.lowered.program.native
    return made


def outcome(fn, *args):
    try:
        return fn(*args)
    except (ArithmeticError, ValueError, TypeError) as error:
        return type(error), str(error)


def same(got, want):
    return type(got) is type(want) and (repr(got) == repr(want) or got == want == 0 and str(got) == str(want))


def check(made, expected, a, b):
    want = outcome(expected, a, b)
    if isinstance(want, complex):
        return  # captured graphs have no complex numbers
    got = outcome(made, X, a, b)
    if isinstance(want, tuple):
        assert got == want, (a, b, got, want)
        return
    if isinstance(got[0], type):  # Python's number is beyond what a float holds
        assert got[0] is OverflowError and abs(want) > 2**1000, (a, b, got, want)
        return
    number, scaled = got
    assert same(number, want), (a, b, number, want)
    assert torch.equal(scaled.nan_to_num(7), (X * float(want)).nan_to_num(7)), (a, b)


@pytest.mark.parametrize("target", BINARY)
def test_operations_on_two_numbers(target):
    made = compiled(target, "a", "b")
    values = (*FLOATS, *OTHERS)
    for a, b in itertools.product(values, values):
        if type(a) is float or type(b) is float or isinstance(a, np.floating):
            check(made, target, a, b)


@pytest.mark.parametrize("target", BINARY)
@pytest.mark.parametrize("constant", CONSTANTS)
def test_operations_on_a_number_and_a_constant(target, constant):
    left, right = compiled(target, constant, "a"), compiled(target, "a", constant)
    for a in (*FLOATS, np.float64(0.1)):
        check(left, lambda a, _b: target(constant, a), a, 1.0)
        check(right, lambda a, _b: target(a, constant), a, 1.0)


@pytest.mark.parametrize("target", UNARY)
def test_functions_of_one_number(target):
    made = compiled(target, "a")
    # torch's frontends declare integers as integers, and no tensor holds 2**70.
    for a in (*FLOATS, *(other for other in OTHERS if other != 2**70), 1e-5, 37.0, -745.0, 1e22):
        check(made, lambda a, _b: target(a), a, 1.0)


INTEGERS = (0, 1, -1, 7, 2**26, 2**31, 2**52, 2**53, 2**53 + 1, -(2**53) - 3, 2**62, 2**63 - 1)


@pytest.mark.parametrize(
    "fn",
    [lambda n: n + 1, lambda n: n * 3 - 2, lambda n: n * n, lambda n: n * n * 5 + n, lambda n: 2**60 - n],
)
def test_expressions_of_integers(fn):
    env, graph = ShapeEnv(), Graph()
    with FakeTensorMode(shape_env=env) as mode:
        fake = mode.from_tensor(X, static_shapes=True)
        x, n = graph.placeholder("x"), graph.placeholder("n")
        x.meta["val"], n.meta["val"] = fake, env.create_unbacked_symint()
        whole = graph.call_function(fn, (n,))
        whole.meta["val"] = fn(n.meta["val"])
        inverse = graph.call_function(operator.truediv, (1, whole))
        inverse.meta["val"] = env.create_unbacked_symfloat()
        scaled = graph.call_function(torch.ops.aten.mul.Scalar, (x, inverse))
        scaled.meta["val"] = fake * 2.0
        graph.output((inverse, scaled))
    made = fi.compile_graph(GraphModule({}, graph), (), FAST, check_arguments=False)
    for value in filter(lambda value: abs(fn(value)) < 2**63, INTEGERS):
        want = outcome(lambda v: 1 / fn(v), value)
        got = outcome(made, X, value)
        assert same(got[0], want) if type(want) is float else got == want, (value, got, want)
