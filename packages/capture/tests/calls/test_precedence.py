"""One registry, one order: keys of rules, and what decides if several rows hold."""

import functools
import types

import pytest
import torch

import fxstack_capture as fx
from fxstack_capture.calls.decisions.explaining import explain_callable
from fxstack_capture.calls.decisions.precedence import CASES, PRECEDENCE
from fxstack_capture.calls.rules import RULES
from fxstack_capture.torch_side.rules import table
from fxstack_capture.trace.rule_registry import Registry, run_plainly


def function(x):
    return x + 1


def other(trace, fn, args, kwargs):
    return "other"


@functools.wraps(function)
def renamed(x):
    return function(x)


@pytest.fixture
def registry():
    return Registry()


def test_by_object_and_by_code(registry):
    registry.add(other, function, function.__code__)
    copy = types.FunctionType(function.__code__, globals())
    assert registry.objects[id(function)] is other and id(copy) not in registry.objects
    assert registry.of_code(copy) is other and registry.of_code(renamed) is None
    assert registry.original_codes[id(function)] is function.__code__


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("function", other),
        (f"{__name__}:function", other),
        ("elsewhere:function", None),
        ("renamed", other),
        ("Class.function", None),
    ],
)
def test_by_name(registry, key, expected):
    registry.add(other, key)
    assert registry.of_name(renamed) is expected


def test_a_key_has_one_rule(registry):
    registry.add(other, len)
    registry.add(other, len)
    with pytest.raises(ValueError, match="more than one rule"):
        registry.add(run_plainly, len)


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, 2), {}), ((1,), {"x": 1})])
def test_other_numbers_of_arguments_are_errors_of_the_callable(registry, args, kwargs):
    registry.unpacked(len, count=(1, 1))(lambda context, value: "ruled")
    rule = registry.objects[id(len)]
    assert rule(None, len, ([],), {}) == "ruled"
    with pytest.raises(TypeError):
        rule(None, len, args, kwargs)


def test_a_tuple_of_keys_and_classes(registry):
    registry.rule(len, abs)(other)
    registry.instances(functools.partial)(other)
    registry.forward(repr)(other)
    assert {id(len), id(abs), id(repr)} == set(registry.objects)
    assert registry.classes == {functools.partial: other} and registry.forwarding == {id(repr)}


def test_every_kind_ends_with_a_row_that_always_holds():
    assert len({case.name for case in PRECEDENCE}) == len(PRECEDENCE)
    for kind, cases in CASES.items():
        if kind not in RULES.classes:
            assert cases[-1].find(None, None) is not None, kind


def test_a_rule_by_identity_hides_a_mark():
    marked = fx.disable(lambda x: x)
    assert explain_callable(marked, "marked").decided_by.name == "marked"
    fx.allow_in_graph(marked)
    answer = explain_callable(marked, "marked")
    assert answer.decided_by.name == "rule that the program registered"
    assert "marked" in {decider.name for decider in answer.hidden}


@pytest.mark.parametrize("name", ["item", "tolist", "backward", "storage_offset", "__getitem__"])
def test_bound_tensor_methods_have_the_rule_of_the_function(name):
    x = torch.ones(2)
    rule, fn, args = table.rule_of_call(getattr(x, name), (1,))
    assert rule is not None and rule is table.rule_of(getattr(torch.Tensor, name))
    assert fn is getattr(torch.Tensor, name) and args[0] is x and args[1:] == (1,)
