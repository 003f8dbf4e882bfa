"""Replacing what torch, NumPy or the standard library defines is seen, and so is putting it back."""

import os

import pytest
import torch
from library_changes import SCOPE, replaced
from same import difference

import fxstack_capture

WORLD = """
X = torch.linspace(-2, 2, 16).view(4, 4)
relu = torch.relu
torch.manual_seed(0)
lin = nn.Linear(4, 4)
seq = nn.Sequential(lin, nn.ReLU(), nn.LayerNorm(4))
def other(x, *a, **k):
    return x * 3 + 1
class Custom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
def loop(x):
    total = 0.0
    for row in x:
        total = total + row
    return total
def imports(x):
    import math
    return x * math.sin(1.0)
def compares(x):
    return 7.0 in x
class Named:
    def __getattr__(self, name):
        return len(name)
named = Named()
"""

CASES = [
    # of modules: functions that are operators, that are inlined, that C code runs, and that operators call
    ("F.relu(X)", "F", "relu", "other"),
    ("torch.relu(X)", "torch", "relu", "other"),
    ("relu(X)", "torch", "relu", "other"),
    ("F.relu(X)", "torch", "relu", "other"),
    ("nn.ReLU()(X)", "torch", "relu", "other"),
    ("torch.relu(X)", "torch", "relu", "torch.sigmoid"),
    ("F.relu(X)", "torch", "relu", "torch.sigmoid"),
    ("torch.zeros(2) + 1", "torch", "zeros", "lambda *a, before=torch.zeros: before(*a) * 2 + 1"),
    ("torch.special.expit(X)", "torch.special", "expit", "other"),
    ("torch.einsum('ij,jk', X, X)", "torch", "einsum", "lambda e, *x: x[0]"),
    ("F.softmax(X, -1)", "torch.Tensor", "softmax", "other"),
    ("nn.init.ones_(X.clone())", "torch.nn.init", "ones_", "lambda t: t.zero_()"),
    ("X * math.sin(1.0)", "math", "sin", "lambda x: 7.0"),
    ("X * math.pi", "math", "pi", "9.0"),
    ("imports(X)", "sys.modules", "math", "types.SimpleNamespace(sin=lambda x: 3.0)"),
    ("operator.mul(X, 3)", "operator", "mul", "lambda a, b: a + b"),
    ("functools.reduce(operator.add, [X, X])", "functools", "reduce", "lambda f, s: s[0]"),
    ("X * float(np.sin(1.0))", "np", "sin", "lambda x: 3.0"),
    ("X * len([1, 2])", "builtins", "len", "lambda x: 42"),
    ("X * sum([1, 2])", "builtins", "sum", "lambda x: 42"),
    ("X * divmod(7, 2)[1]", "builtins", "divmod", "lambda a, b: (1, 9)"),
    ("X * copy.copy([1])[0]", "copy", "copy", "lambda x: [8]"),
    ("X * copy.copy([1])[0]", "copy.copy", "__code__", "(lambda x: [6]).__code__"),
    ("X * torch.is_grad_enabled()", "torch", "is_grad_enabled", "lambda: 5"),
    ("X * isinstance(lin, nn.Linear)", "torch.nn", "Linear", "torch.nn.Identity"),
    # of functions
    ("F.relu(X)", "F.relu", "__code__", "(lambda input, inplace=False: input * 6).__code__"),
    ("F.leaky_relu(X)", "F.leaky_relu", "__defaults__", "(0.5, False)"),
    ("lin(X)", "nn.Linear.forward", "__code__", "(lambda self, input: input * 6).__code__"),
    # of classes
    ("lin(X)", "nn.Linear", "forward", "lambda self, x: x * 4"),
    ("seq(X)", "nn.LayerNorm", "forward", "lambda self, x: x * 4"),
    ("seq(X)", "nn.Sequential", "forward", "lambda self, x: x * 4"),
    ("lin(X)", "nn.Module", "__call__", "lambda self, x: x * 4"),
    ("lin(X)", "nn.Module", "_call_impl", "lambda self, x: x * 4"),
    ("lin(X)", "nn.Module", "__getattr__", "lambda self, name: torch.ones(4, 4)"),
    ("lin(X)", "torch.nn.modules.linear", "F", "types.SimpleNamespace(linear=lambda a, b, c: a * 9)"),
    ("X * collections.Counter('aab')['q']", "collections.Counter", "__missing__", "lambda self, k: 33"),
    ("X * collections.UserDict(a=1)['a']", "collections.UserDict", "__getitem__", "lambda self, k: 33"),
    ("Custom.apply(X)", "torch.autograd.Function", "apply", "classmethod(lambda cls, x: x * 7)"),
    # of tensors
    ("X.add(1)", "torch.Tensor", "add", "lambda x, y: x * 5"),
    ("X + 1", "torch.Tensor", "__add__", "lambda x, y: x * 5"),
    ("X + 1", "torch.Tensor", "__add__", "torch.Tensor.__sub__"),
    ("1 + X", "torch.Tensor", "__radd__", "lambda x, y: x * 5"),
    ("X[0]", "torch.Tensor", "__getitem__", "lambda x, y: x * 5"),
    ("X * len(X)", "torch.Tensor", "__len__", "lambda x: 17"),
    ("loop(X)", "torch.Tensor", "__iter__", "lambda x: iter((x, x))"),
    ("X * compares(X)", "torch.Tensor", "__contains__", "lambda x, y: True"),
    ("X * X.shape[0]", "torch.Tensor", "shape", "property(lambda x: (9, 9))"),
    ("X * hasattr(X, 'extra')", "torch.Tensor", "extra", "5"),
    # what it adds hides nothing
    ("X * named.size", "torch.nn.functional", "size", "other"),
]


def _worlds(expression):
    scope = dict(SCOPE)
    exec(WORLD + f"\ndef main():\n    return {expression}\n", scope)
    return scope


def _calls(expression, holder, name, new, order):
    """What differs from plain Python in calls while ``new`` is in force or not, and how many graphs were compiled."""
    scope, graphs = _worlds(expression), []

    def backend(graph_module, example_inputs):
        graphs.append(graph_module)
        return graph_module.forward

    compiled = fxstack_capture.optimize(backend)(scope["main"])
    target, new = eval(holder, scope), eval(new, scope)
    for in_force in order:
        with replaced(target, name, new) if in_force else torch.enable_grad():
            expected, found = scope["main"](), compiled()
        if (what := difference(expected, found)) is not None:
            return f"in force {in_force}: {what}", len(graphs)
    return None, len(graphs)


def _in_a_child(case, order):
    """Return what differs, as text, found by a child of this process.

    Setting and deleting a special method changes a class for good: CPython keeps the slot, so that tensors become
    sequences after ``__getitem__``, and ``torch.Tensor([x[0], 2.0])`` raises an error in eager torch.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = _calls(*case, order)[0] or ""
        except BaseException as error:
            text = repr(error)
        os.write(writing, text.encode()[:4000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return text if status == 0 else f"the child ended with status {status}"


@pytest.fixture(autouse=True)
def _forget():
    yield
    fxstack_capture.reset()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} and {case[1]}.{case[2]}")
@pytest.mark.parametrize("first", [False, True], ids=["compiled before", "compiled after"])
def test_replacing_a_definition_is_seen(case, first):
    order = first, not first, first, not first
    found = _in_a_child(case, order) if case[1] == "torch.Tensor" else _calls(*case, order)[0]
    assert not found, found


@pytest.mark.parametrize("case", [CASES[0], CASES[2], CASES[3], CASES[27], CASES[37]])
def test_what_was_put_back_is_not_compiled_again(case):
    _, before = _calls(*case, (False, True, False))
    _, after = _calls(*case, (False, True, False, True, False, True, False))
    assert before == after


def test_a_program_that_shows_tensors_in_its_own_way_is_compiled():
    case = ("X + 1", "torch.Tensor", "__repr__", "lambda self: 'tensor'")
    assert _calls(*case, (True, False, True)) == (None, 1)


def test_changes_of_what_was_not_read_compile_nothing():
    order = (False, True) * 5
    assert _calls("torch.relu(X)", "torch", "some_new_name", "1", order) == (None, 1)
    assert _calls("lin(X)", "nn.Linear", "some_new_name", "1", order) == (None, 1)


def test_the_miss_names_what_was_replaced():
    scope = _worlds("F.relu(X)")
    options = fxstack_capture.CaptureOptions(error_on_recompile=True)
    compiled = fxstack_capture.optimize(options=options)(scope["main"])
    compiled()
    with (
        replaced(torch, "relu", scope["other"]),
        pytest.raises(Exception, match=r"globals of torch\['relu'\]"),
    ):
        compiled()
