"""What the errors and graph breaks at operators with functions say."""

import pytest
import torch

import fxstack
from fxstack_capture.driver.errors import OperatorError

X = torch.ones(3)


def plus(a, *_more):
    return a + 1


REFUSED_CALLS = {
    "a predicate of 2 elements": lambda x: torch.cond(x[:2] > 0, plus, plus, (x,)),
    "a value of type str in operand 1": lambda x: torch.cond(x.sum() > 0, plus, plus, (x, "s")),
    "a value of type object in operand 1": lambda x: torch.cond(x.sum() > 0, plus, plus, (x, object())),
    "operands of type Tensor": lambda x: torch.cond(x.sum() > 0, plus, plus, x),
}
EAGERS_ERRORS = {
    "pred to be bool or tensor": lambda x: torch.cond([1], plus, plus, (x,)),
    "but got a": lambda x: torch.cond("a", plus, plus, (x,)),
    "branches to be callable": lambda x: torch.cond(x.sum() > 0, 3, plus, (x,)),
}


def error_of(call, kind=Exception):
    with pytest.raises(kind) as info:
        call(X)
    return info.value


def refusal_of(program):
    """The text of the error under ``fullgraph``."""
    return str(error_of(fxstack.compile(program, fullgraph=True), OperatorError))


@pytest.mark.parametrize("text", REFUSED_CALLS)
def test_a_call_of_cond_that_torch_refuses_is_named(text):
    found = refusal_of(REFUSED_CALLS[text])
    assert f"torch.cond with {text} (" in found
    assert f'"{__file__}", line {REFUSED_CALLS[text].__code__.co_firstlineno}' in found
    assert "_choose" not in found


@pytest.mark.parametrize("program", [*REFUSED_CALLS.values(), *EAGERS_ERRORS.values()])
def test_a_refused_call_of_cond_raises_eagers_error(program):
    found, expected = error_of(fxstack.compile(program)), error_of(program)
    assert (type(found), str(found).split(" at 0x")[0]) == (type(expected), str(expected).split(" at 0x")[0])


@pytest.mark.parametrize("text", EAGERS_ERRORS)
def test_an_error_without_values_is_eagers_under_fullgraph(text):
    assert text in str(error_of(fxstack.compile(EAGERS_ERRORS[text], fullgraph=True), RuntimeError))
