"""What the errors and graph breaks at operators with functions say."""

import pytest
import torch
from torch._higher_order_ops import map as map_
from torch._higher_order_ops import scan, while_loop

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


SEEN, TABLE, COUNT = [], {}, 0
HOLDER = torch.nn.Module()


def appends(a):
    SEEN.append(1)
    return a + 1


def sets_an_entry(a):
    TABLE["k"] = 2
    return a + 1


def sets_a_global(a):
    global COUNT
    COUNT += 1
    return a + 1


def sets_an_attribute(a):
    HOLDER.calls = 3
    return a + 1


def prints(a):
    print("text")
    return a + 1


SIDE_EFFECTS = {
    "['SEEN']": appends,
    "['TABLE'], entry 'k'": sets_an_entry,
    ", entry 'COUNT'": sets_a_global,
    "['HOLDER'].__dict__, entry 'calls'": sets_an_attribute,
    "calls print": prints,
}


def in_cond(function, x):
    return torch.cond(x.sum() > 0, function, lambda a: a - 1, (x,))


def in_loop(function, x):
    return while_loop(lambda n, a: n < 2, lambda n, a: (n + 1, function(a)), (torch.tensor(0), x))


def in_scan(function, x):
    return scan(lambda carry, row: (carry + 1, function(row)), x[0], x)


def in_map(function, x):
    return map_(lambda row: function(row), x)


@pytest.mark.parametrize("text", SIDE_EFFECTS)
@pytest.mark.parametrize("call", [in_cond, in_loop])
def test_a_side_effect_of_a_function_names_what_it_changes(call, text):
    assert f"{text}, cannot be captured" in refusal_of(lambda x: call(SIDE_EFFECTS[text], x))


def text_as_result(a):
    return "text"


@pytest.mark.parametrize("call", [in_cond, in_loop, in_scan, in_map])
def test_a_result_that_is_no_tensor_names_the_function_of_the_program(call):
    found = refusal_of(lambda x: call(text_as_result, x)).split("\n")[0]
    assert "_higher_order_ops" not in found
    assert f"{__file__}:" in found


def doubles(a):
    if a.dim() > 5:
        return a
    return a.double()


def nests(a):
    return (a, a)


def counted(n, a):
    return n + 1, a, a


def in_plain_loop(body, x):
    return while_loop(lambda n, a: n < 2, body, (torch.tensor(0), x))


def line_of(function, lines):
    return f"({__file__}:{function.__code__.co_firstlineno + lines})"


MISMATCHES = {
    "dtype torch.float64 in the true branch " + line_of(doubles, 3): (in_cond, doubles),
    "[*,\n  *]) in the true branch " + line_of(nests, 1): (in_cond, nests),
    "torch.float64 after one iteration " + line_of(in_loop, 1): (in_loop, doubles),
    "returns 3 values for 2 carried ones " + line_of(counted, 1): (in_plain_loop, counted),
}


@pytest.mark.parametrize("text", MISMATCHES)
def test_a_mismatch_names_the_lines_of_the_returns(text):
    call, function = MISMATCHES[text]
    assert text in refusal_of(lambda x: call(function, x))


CONDITIONS = {
    "is not one value but a tensor of size (3,)": lambda x: while_loop(lambda a: a < 3, plus, (x,)),
    "is always true": lambda x: while_loop(lambda a: True, plus, (x,)),
}


@pytest.mark.parametrize("text", CONDITIONS)
def test_a_condition_that_is_no_condition_is_named_with_its_line(text):
    line = CONDITIONS[text].__code__.co_firstlineno
    assert f"condition {text} ({__file__}:{line})" in refusal_of(CONDITIONS[text])


CARRIES = {
    "returns 2 carried values for 1": lambda x: scan(lambda c, v: ((c + v, c), v), x[0] * 1, x),
    "returns 1 carried values for 2": lambda x: scan(lambda c, v: (c[0] + v, v), (x[0] * 1, x[0] * 2), x),
    "does not return a pair": lambda x: scan(lambda c, v: (c + v, v, v), x[0] * 1, x),
}


@pytest.mark.parametrize("text", CARRIES)
def test_a_scan_that_carries_another_number_of_values_is_named(text):
    found = refusal_of(CARRIES[text])
    assert f"scan whose function {text}" in found
    assert f"({__file__}:{CARRIES[text].__code__.co_firstlineno})" in found
