"""Named tuple classes that are made in a frame leave it: each call makes a class of its own, as in plain Python."""

import collections

import pytest
import torch

import fxstack_capture as fx

X = torch.arange(3.0)


def returned(x):
    return collections.namedtuple("Pair", "a b", defaults=(2,))(x + 1)  # noqa: PYI024


def with_class(x):
    names = ["a", "b"]
    made = collections.namedtuple("Pair", names)  # noqa: PYI024
    names.append("c")
    return made, made(x, names), made(a=x * 2, b=None)


def changed(x):
    made = collections.namedtuple("Pair", "a b")  # noqa: PYI024
    made.extra = 3
    return made(x + 1, made.extra)


@pytest.mark.parametrize("program", [returned, with_class])
def test_named_tuples_leave_in_one_graph(program):
    graphs = []

    def count(module, _inputs):
        graphs.append(module)
        return module

    compiled = fx.optimize(count, fullgraph=True)(program)
    found = [compiled(X) for _ in range(2)]
    assert [str(value) for value in found] == [str(program(X))] * 2
    assert len(graphs) == 1


def test_the_classes_are_like_those_of_plain_python():
    compiled = fx.optimize(fullgraph=True)(with_class)
    first, second = compiled(X), compiled(X)
    expected = with_class(X)[0]
    made = first[0]
    assert made is not second[0]
    assert type(first[1]) is made and type(first[2]) is made
    for name in ("__name__", "__module__", "__qualname__", "_fields", "_field_defaults"):
        assert getattr(made, name) == getattr(expected, name)


def test_a_changed_class_breaks_the_graph():
    with pytest.raises(fx.Unsupported, match="escaping-object"):
        fx.optimize(fullgraph=True)(changed)(X)
    found = fx.optimize()(changed)(X)
    assert type(found).extra == 3
    assert str(found) == str(changed(X))
