"""``python -m fxstack_capture rule``: the answer exists for every public callable, and is what a trace does."""

import builtins
import collections
import functools
import inspect
import itertools
import json
import math
import operator
from pathlib import Path

import pytest
import torch
from counting import Counting

import fxstack_capture as fx
from fxstack_capture.__main__ import main
from fxstack_capture.calls.decisions.explaining import UnknownNameError, explain, explain_callable

MODULES = (
    builtins,
    itertools,
    functools,
    collections,
    operator,
    math,
    torch,
    torch.nn.functional,
    torch.Tensor,
    torch.nn,
)
PACKAGE = Path(fx.__file__).parent
X = torch.ones(2, 3)


def callables(module):
    found = ((name, inspect.getattr_static(module, name)) for name in dir(module) if not name.startswith("_"))
    for name, value in found:
        value = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
        if callable(value) and not isinstance(value, property):
            yield f"{module.__name__}.{name}", value


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_public_callable_has_an_answer(module):
    answers = [explain_callable(fn, name) for name, fn in callables(module)]
    assert len(answers) > 5
    for answer in answers:
        file, _, line = answer.decided_by.place.rpartition(":")
        assert (PACKAGE / file).is_file() and int(line) > 0, answer
        assert len(answer.decided_by.does) > 5 and "None" not in answer.decided_by.does, answer
        assert answer.decided_by not in answer.hidden


CALLS = {
    "torch.nn.functional.gelu": lambda: torch.nn.functional.gelu(X),
    "torch.Tensor.add": lambda: torch.Tensor.add(X, 1),
    "torch.sin": lambda: torch.sin(X),
    "aten.mul.Tensor": lambda: torch.ops.aten.mul.Tensor(X, X),
    "torch.nn.functional.linear": lambda: torch.nn.functional.linear(X, X),
}


@pytest.mark.parametrize("name", CALLS)
def test_operators_are_one_node(name):
    assert explain(name).decided_by.name == "operator"
    backend = Counting()
    fx.optimize(backend, options=fx.CaptureOptions(fullgraph=True))(CALLS[name])()
    (graph,) = backend.graphs
    assert sum(node.op in ("call_function", "call_method") for node in graph.graph.nodes) == 1


def registered(x):
    return x * 2


@pytest.mark.parametrize(
    ("name", "decider", "part"),
    [
        ("len", "rule of this package (calls/rules)", "hides: pure C function"),
        ("str.join", "method of a pure type", "nothing but iterate"),
        ("functools.reduce", "rule of this package (calls/rules)", "calls argument 1"),
        ("torch.vmap", "Python code", "interprets the bytecode"),
        ("torch.nn.Linear", "class", "__new__ and __init__"),
        ("os.getpid", "refused", "breaks the graph"),
        ("torch.tensor", "rule of the tracer (torch_side/rules)", "tensor_arrays.py"),
        ("collections.OrderedDict.fromkeys", "class method in C", "runs for real"),
        ("functools.cache", "Python code", "interprets"),
        ("torch.compiler.disable", "marked", "mark of torch.compiler"),
    ],
)
def test_answers(name, decider, part):
    answer = explain(name)
    assert answer.decided_by.name == decider and part in answer.text(), answer.text()


def test_a_registered_rule_hides_the_code():
    fx.allow_in_graph(registered)
    answer = explain_callable(registered, "registered")
    assert answer.decided_by.name == "rule that the program registered"


def test_a_method_is_decided_by_its_function():
    assert "| Linear.forward (function)" in explain_callable(torch.nn.Linear(1, 1).forward, "forward").text()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("torch.nn.functional.gelo", "nothing is called torch.nn.functional.gelo; near are gelu"),
        ("nosuchmodule.f", "nothing is called nosuchmodule.f, because nothing is called nosuchmodule$"),
        (".sin", "nothing is called .sin, because a part of the name is empty$"),
        ("math.pi", "math.pi is not called, it is an object of class float"),
        ("torch.Tensor.shape", "torch.Tensor.shape is not called"),
    ],
)
def test_unknown_names(name, text):
    with pytest.raises(UnknownNameError, match=text):
        explain(name)


def test_the_command(capsys):
    assert main(["rule", "len", "torch.sin"]) == 0
    assert capsys.readouterr().out.startswith(
        "len (builtin_function_or_method)\n  decided by: rule of this package"
    )
    assert main(["rule", "--json", "len"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["decided_by"]["place"].startswith("calls/rules/builtins/builtin_functions.py:")
    assert main(["rule", "torch.nosuch", "len"]) == 2
    captured = capsys.readouterr()
    assert "nothing is called torch.nosuch" in captured.err and captured.out.startswith("len (")
