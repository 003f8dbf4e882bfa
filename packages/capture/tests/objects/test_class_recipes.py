"""Classes that calls make in a frame leave it: each call makes a class of its own, as in plain Python."""

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


class Base:
    def three(self):
        return 3


class Hooked:
    made = []

    def __init_subclass__(cls):
        Hooked.made.append(cls.__name__)


def with_functions(x):
    made = type("Made", (Base,), {"k": 3, "f": lambda self, n=2: self.three() + n})
    each = made()
    each.value = x + 1
    return x * 2, made, lambda: (each.f(), each.value, made.k, type(each) is made)


def of_errors(x):
    made = type("Made", (ValueError,), {})
    try:
        raise made("a")
    except ValueError as error:
        text = str(error)
    return x * 2, made, lambda: text


def of_modules(x):
    made = type("Made", (torch.nn.Module,), {"forward": lambda self, y: y * 2})
    module = made()
    return module(x), made, lambda: module(x)


def written(x):
    made = type("Made", (Base,), {"k": 3})
    made.k = 4
    return x * 2, made, lambda: made.k


def of_a_hook(x):
    made = type("Made", (Hooked,), {})
    return x * 2, made, lambda: list(Hooked.made)


def of_another(x):
    made = type("Made", (type("Base", (Base,), {}),), {})
    return x * 2, made, lambda: made.__mro__[1].__name__


def with_slots(x):
    made = type("Made", (Base,), {"__slots__": ("value",)})
    each = made()
    each.value = x
    return x * 2, made, lambda: (each.value, type(each) is made)


def observed(program):
    Hooked.made.clear()
    result, made, later = program(X)
    names = made.__name__, made.__module__, made.__qualname__, made.__bases__[0].__name__
    return repr((result, names, list(vars(made)), made.__doc__, later()))


@pytest.mark.parametrize("program", [with_functions, of_errors, of_modules])
def test_classes_of_type_leave_in_one_graph(program):
    compiled = fx.optimize(fullgraph=True)(program)
    assert [observed(compiled) for _ in range(2)] == [observed(program)] * 2
    assert compiled(X)[1] is not compiled(X)[1]


@pytest.mark.parametrize("program", [written, of_a_hook, of_another, with_slots])
def test_other_classes_of_type_leave_as_they_are(program):
    compiled = fx.optimize()(program)
    assert [observed(compiled) for _ in range(2)] == [observed(program)] * 2


def test_a_class_has_the_module_of_its_maker():
    def program(x):
        return x * 2, type("Made", (), {}).__module__

    assert fx.optimize(fullgraph=True)(program)(X)[1] == __name__
