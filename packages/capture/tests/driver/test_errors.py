"""The errors that a program sees: reasons of graph breaks that the caller forbids, and torch's classes of errors."""

import pickle
import re

import pytest
import torch
import torch._dynamo.exc as of_torch
from torch._subclasses import fake_tensor

import fxstack_capture as fx
from fxstack_capture.driver.errors import TracingWarning

X = torch.randn(3)


def whole(fn, *args, **options):
    """The error of ``fn`` as one whole graph."""
    with pytest.raises(Exception) as caught:
        fx.optimize(fullgraph=True, **options)(fn)(*args)
    return caught.value


def conditional(x):
    return x + 1 if x.sum() > 0 else x


def loop(x):
    while x.sum() < 10:
        x = x.abs() * 2 + 1
    return x


def negation(x):
    return x + 1, not x.sum()


def either(x):
    return x.sum() > 0 or x.sum() < 5


def number(x):
    return x + 1 if x.sum().item() > 0 else x


@pytest.mark.parametrize("fn", [conditional, loop, negation, either, number], ids=lambda fn: fn.__name__)
def test_branches_on_data(fn):
    error = whole(fn, X)
    assert error.gb_type == "data-dependent-branch"
    assert "torch.cond" in error.msg
    assert "capture_scalar_outputs" not in error.msg
    assert error.real_stack[-1].name == fn.__name__
    assert isinstance(error, of_torch.Unsupported)
    assert isinstance(error, of_torch.UserError)
    assert error.error_type is of_torch.UserErrorType.DYNAMIC_CONTROL_FLOW


def test_assertions_on_data():
    def asserts(x):
        assert x.sum() > 0
        return x + 1

    with fx.patch_options(assume_checks=False):
        assert "torch._check" in str(whole(asserts, X))


@pytest.mark.parametrize(
    ("fn", "option"),
    [
        (lambda x: x.sum().item(), "capture_scalar_outputs"),
        (lambda x: float(x.sum()), "capture_scalar_outputs"),
        (lambda x: x.tolist(), "capture_scalar_outputs"),
        (lambda x: x.nonzero(), "capture_dynamic_output_shape_ops"),
        (lambda x: x[x > 0], "capture_dynamic_output_shape_ops"),
        (lambda x: torch.equal(x, x + 1), None),
        (lambda x: str(x), None),
        (lambda x: conditional(x), None),
    ],
)
def test_options_are_named_where_they_help(fn, option):
    (broken,) = fx.explain(lambda x: fn(x + 1))(X).breaks
    assert re.findall(r"set (\w+)=True", broken.message) == ([] if option is None else [option])
    if option is not None:
        with fx.patch_options(**{option: True}):
            assert not fx.explain(lambda x: fn(x + 1))(X).breaks


def test_kinds_of_errors_are_those_of_torch():
    def breaks(x):
        fx.graph_break()
        return x + 1

    seen = []

    def appends(x):
        seen.append(1)
        return x + 1

    assert isinstance(whole(breaks, X), of_torch.Unsupported)
    assert not isinstance(whole(breaks, X), of_torch.UserError)
    operator = whole(lambda x: torch.cond(x.sum() > 0, appends, torch.sin, (x,)), X)
    assert isinstance(operator, of_torch.UncapturedHigherOrderOpError)
    assert issubclass(fx.ComptimeError, of_torch.InternalTorchDynamoError)


def optimised(**options):
    return fx.optimize(options=fx.CaptureOptions(dynamic=False, **options))


def test_recompiling():
    compiled = optimised(recompile_limit=1, fail_on_recompile_limit=True)(lambda x, n: x + n)
    compiled(X, 1)
    with pytest.raises(of_torch.FailOnRecompileLimitHit):
        compiled(X, 2)
    compiled = optimised(error_on_recompile=True)(lambda x, n: x + n)
    compiled(X, 1)
    with pytest.raises(of_torch.RecompileError):
        compiled(X, 2)


def raising(error):
    def backend(graph_module, example_inputs):
        raise error

    return backend


def test_errors_of_backends():
    cause = ValueError("no such register")
    error = whole(lambda x: x + 1, X, backend=raising(cause))
    assert isinstance(error, of_torch.BackendCompilerFailed)
    assert error.inner_exception is cause
    assert "no such register" in str(error)


def test_errors_are_not_suppressed_where_one_graph_is_asked_for():
    options = fx.CaptureOptions(fullgraph=True, suppress_errors=True)
    with pytest.raises(of_torch.BackendCompilerFailed):
        fx.optimize(raising(ValueError("no")), options=options)(lambda x: x + 1)(X)


@pytest.mark.parametrize("cls", [fx.SkipFrame, of_torch.SkipFrame])
def test_backends_skip_frames(cls):
    fn = fx.optimize(raising(cls("not this")))(lambda x: x + 1)
    assert torch.equal(fn(X), X + 1)
    assert whole(lambda x: x + 1, X, backend=raising(cls("not this"))).gb_type == "skipped-by-backend"


OP = torch.ops.aten.nonzero.default


@pytest.mark.parametrize(
    "error",
    [
        fake_tensor.DataDependentOutputException(OP),
        fake_tensor.DynamicOutputShapeException(OP),
        fake_tensor.UnsupportedOperatorException(OP),
        fake_tensor.UnsupportedFakeTensorException("no fake"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_backends_that_lack_an_operator(error):
    with pytest.warns(TracingWarning, match=f"{type(error).__name__}(.|\n)*runs in plain Python"):
        assert torch.equal(fx.optimize(raising(error))(lambda x: x + 1)(X), X + 1)
    refused = whole(lambda x: x + 1, X, backend=raising(error))
    assert refused.gb_type == "unsupported-by-backend"
    assert isinstance(refused, of_torch.Unsupported)


def test_other_errors_of_operators_are_errors_of_the_backend():
    error = whole(lambda x: x + 1, X, backend=raising(NotImplementedError("later")))
    assert isinstance(error, of_torch.BackendCompilerFailed)


def test_errors_can_be_pickled():
    error = whole(conditional, X)
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is type(error)
    assert (str(copied), copied.record) == (str(error), error.record)


def root(x):
    return x + inside(x)


def inside(x):
    return x.sin() * (1 if x.sum() > 0 else 2)


def test_messages_show_the_lines_with_the_expressions():
    shown = str(whole(root, X)).splitlines()[-6:]
    assert [line.strip() for line in shown[1::3]] == [
        "return x + inside(x)",
        "return x.sin() * (1 if x.sum() > 0 else 2)",
    ]
    marked = [  # Python 3.13 marks the function of a call by "~"
        "".join(c for c, mark in zip(line, carets, strict=False) if mark in "~^")
        for line, carets in zip(shown[1::3], shown[2::3], strict=True)
    ]
    assert marked == ["inside(x)", "x.sum() > 0"]
    assert whole(root, X).real_stack[-1].line == "return x.sin() * (1 if x.sum() > 0 else 2)"


def test_explanations_show_the_lines_of_resumed_functions():
    def resumed(x):
        fx.graph_break()
        return x + x.sum().item()

    reasons = fx.explain(resumed)(X).break_reasons
    lines = reasons[1].reason.splitlines()[-2:]
    marked = [line.strip().replace("~", "^") for line in lines]
    assert marked == ["return x + x.sum().item()", "^^^^^^^^^^^^^^"]


def test_code_without_a_file_is_named_by_its_line():
    names = {}
    # Other programs of the process may have given Python a text for "<string>", as a console does.
    exec(compile("def made(x):\n    return x.sum().item()", "<no file>", "exec"), names)
    (record,) = fx.explain(names["made"])(X).breaks
    assert record.message.endswith('File "<no file>", line 2, in made')
