"""Errors of custom operators name the line of the program; wrong fake functions are named with what differs."""

import re
import traceback
import warnings

import pytest
import torch
from torch.library import Library, custom_op

import fxstack
from fxstack_inductor.errors import WrongFakeError

X = torch.arange(3.0) + 1
_LIBRARY = Library("erring", "FRAGMENT")


@custom_op("erring::refuse", mutates_args=())
def refuse(x: torch.Tensor, times: int) -> torch.Tensor:
    raise LookupError(f"refused {times} times")


@refuse.register_fake
def _(x, times):
    return torch.empty_like(x)


@custom_op("erring::refuse_write", mutates_args={"x"})
def refuse_write(x: torch.Tensor) -> None:
    raise LookupError("refused to write")


def helper(x):
    y = x + 1
    return torch.ops.erring.refuse(y, 3)


def called_by_helper(x):
    return helper(x.sin()).cos()


def called_twice(x):
    y = x.sin()
    if x.shape[0] == 3:
        y = refuse(y, 1)
    return refuse(y, 2)


def writes(x):
    y = x.clone()
    refuse_write(y)
    return y


def under_no_grad(x):
    with torch.no_grad():
        return helper(x)


def after_break(x):
    y = x.cos()
    torch._dynamo.graph_break()
    return helper(y)


def aten_after_write(x):
    x.add_(1)
    return torch.linalg.inv(x.reshape(1, 3).expand(3, 3))


def lines_of_error(fn, x):
    with pytest.raises((LookupError, RuntimeError)) as found:
        fn(x.clone())
    entries = traceback.extract_tb(found.value.__traceback__)
    own = [(e.name, e.lineno) for e in entries if e.filename == __file__ and e.name != "lines_of_error"]
    generated = [e.filename for e in entries if e.filename.startswith("<")]
    return type(found.value), str(found.value), own, generated


@pytest.mark.parametrize("backend", ["inductor", "aot_eager", "eager"])
def test_errors_have_the_lines_of_the_program(backend):
    for fn in (called_by_helper, called_twice, writes, under_no_grad, after_break, aten_after_write):
        torch._dynamo.reset()
        compiled = fxstack.compile(fn, backend=backend)
        assert lines_of_error(compiled, X) == lines_of_error(fn, X), fn.__name__
    assert torch.is_grad_enabled()


class Refusing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return refuse(gradient, 6)


class Accepted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(torch.zeros(3, 3))
        return x.exp()

    @staticmethod
    def backward(ctx, gradient):
        return torch.linalg.inv(ctx.saved_tensors[0])[0] * gradient


def applies_refusing(x):
    y = x.cos()
    return Refusing.apply(y).sin()


def applies_accepted(x):
    return Accepted.apply(x) * 3


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("fn", [applies_refusing, applies_accepted])
def test_errors_of_a_backward_have_the_line_of_the_forward(fn, backend):
    for _ in range(2):
        out = fxstack.compile(fn, backend=backend)(X.clone().requires_grad_())
        with pytest.raises((LookupError, RuntimeError)) as found:
            out.sum().backward()
        entries = traceback.extract_tb(found.value.__traceback__)
        assert (fn.__name__, fn.__code__.co_firstlineno + (fn is applies_refusing) + 1) in [
            (entry.name, entry.lineno) for entry in entries
        ]
        assert not any(entry.filename.startswith(("<eval_with_key>", "<fxstack B")) for entry in entries)


def operator(name, real, fake, schema="(Tensor x) -> Tensor"):
    _LIBRARY.define(name + schema)
    _LIBRARY.impl(name, real, "CompositeExplicitAutograd")
    torch.library.register_fake(f"erring::{name}", fake, lib=_LIBRARY)
    return getattr(torch.ops.erring, name)


def nothing(x):
    return None


AT_RUN_TIME = {
    "shape": ((lambda x: x.repeat(2), lambda x: torch.empty_like(x)), r"shape \(6,\).*shape \(3,\)"),
    "dtype": ((lambda x: x.double(), lambda x: torch.empty_like(x)), r"dtype torch.float64.*torch.float32"),
    "numbers": (
        (lambda x: [x + 1, x * 2], lambda x: [torch.empty_like(x)] * 3, "(Tensor x) -> Tensor[]"),
        "returned 2 results.*says 3",
    ),
    "second": (
        (
            lambda x: (x + 1, x[1:] * 2),
            lambda x: (x.new_empty(3), x.new_empty(3)),
            "(Tensor x) -> (Tensor, Tensor)",
        ),
        r"result 1 of shape \(2,\).*shape \(3,\)",
    ),
}
WHILE_TRACING = {
    "meta": (
        (lambda x: x * 2, lambda x: torch.empty(3, device="meta")),
        "a tensor on the device meta.*on cpu",
    ),
    "none": ((lambda x: x * 2, nothing), "returned None.*returns a tensor"),
    "one": (
        (lambda x: (x + 1, x), lambda x: (torch.empty_like(x),), "(Tensor x) -> (Tensor, Tensor)"),
        "returned 1 results.*has 2",
    ),
    "raises": ((lambda x: x * 2, lambda x: x.nothing), "raised AttributeError: .*nothing"),
    "divides": ((lambda x: x * 2, lambda x: 1 // 0), "raised ZeroDivisionError"),
    "refuses": ((lambda x: x * 2, lambda x: x.view(77)), "raised RuntimeError: shape '\\[77\\]' is invalid"),
}


def calling(op):
    def program(x):
        made = op(x.sin())
        return [t.cos() for t in made] if isinstance(made, (list, tuple)) else made.cos()

    return program


def says(name, text, arguments):
    place = re.escape(f"{__file__}:{arguments[1].__code__.co_firstlineno}")
    return rf"(?s)the fake function [\w.<>]+ \({place}\) of the operator erring::{name} .*{text}"


@pytest.mark.parametrize("name", AT_RUN_TIME)
def test_results_that_differ_from_the_fake_function_are_errors(name):
    arguments, text = AT_RUN_TIME[name]
    compiled = fxstack.compile(calling(operator(name, *arguments)), fullgraph=True)
    with pytest.raises(WrongFakeError, match=says(name, text, arguments)) as found:
        compiled(X)
    assert "fxstack, please report" not in str(found.value)


def test_strides_that_differ_from_the_fake_function_are_reported():
    arguments = lambda x: x.new_ones(3, 4).t(), lambda x: x.new_empty(4, 3)
    program = calling(operator("strides", *arguments))
    text = says("strides", r"strides \(1, 4\).*strides \(3, 1\)", arguments)
    with pytest.warns(UserWarning, match=text) as caught:
        assert torch.allclose(fxstack.compile(program)(X), program(X))
    assert [w.filename for w in caught if "fake function" in str(w.message)] == [__file__]


@pytest.mark.parametrize("name", WHILE_TRACING)
def test_fake_functions_that_cannot_run_are_named(name):
    arguments, text = WHILE_TRACING[name]
    program = calling(operator(name, *arguments))
    with pytest.raises(fxstack.Unsupported, match=says(name, text, arguments)):
        fxstack.compile(program, fullgraph=True)(X)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert str(fxstack.compile(program)(X)) == str(program(X))
    assert any(re.search(says(name, text, arguments), str(w.message)) for w in caught)
    assert not any("report" in str(w.message) for w in caught)


def test_correct_fake_functions_of_any_kind_are_no_errors():
    op = operator(
        "right", lambda x: x[x > 1], lambda x: x.new_empty(torch.library.get_ctx().new_dynamic_size())
    )
    assert torch.equal(fxstack.compile(lambda x: op(x) * 2)(X), X[X > 1] * 2)
    double = operator("double", lambda x: x * 2, torch.empty_like)
    compiled = fxstack.compile(calling(double), dynamic=True)
    for size in (3, 4, 7):
        x = torch.arange(float(size)).requires_grad_(False)
        assert torch.allclose(compiled(x), calling(double)(x))
