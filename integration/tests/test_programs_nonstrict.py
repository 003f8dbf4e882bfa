"""``nonstrict_trace``: calls that are in the graph as their operators, whatever their Python does."""

import torch
from beside_eager import Programs, attempt
from torch.utils import _pytree as pytree

import fxstack

program = Programs()


class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y

    @fxstack.nonstrict_trace
    def total(self, t):
        fxstack.graph_break()
        return self.x * t + self.y


class Unknown:
    def __init__(self, x):
        self.x = x


pytree.register_pytree_node(Point, lambda p: ((p.x, p.y), ()), lambda parts, _: Point(*parts))


@fxstack.nonstrict_trace
def scaled(x, table, *, by=1):
    fxstack.graph_break()
    return {"value": x * table["a"] * by, "size": x.shape[0]}, [x + 1]


@fxstack.nonstrict_trace
def product(p, by=2):
    fxstack.graph_break()
    return p.x * p.y * by


@fxstack.nonstrict_trace
def written(x):
    x.mul_(2)
    return x + 1


OUTSIDE = torch.ones(1, requires_grad=True)


@fxstack.nonstrict_trace
def with_a_weight_of_its_own(x):
    return x * OUTSIDE


def vector(n):
    return torch.linspace(-1, 1, n)


@program(breaks=0)
def trees_of_arguments_and_results(c):
    @c
    def f(x, p, table):
        found, more = scaled(x, {"a": 2.5}, by=3)
        table["a"] = x + 1
        p.x = p.x + 1
        return found["value"] + found["size"], more, scaled(x, table)[0], product(p)

    found = []
    for n in (3, 4, 5):
        x, p, table = vector(n).requires_grad_(), Point(vector(n), vector(n) * 2), {}
        results = f(x, p, table)
        results[0].sum().backward()
        found += [results, x.grad, p.x, table]
    return found


@program(graphs=1, breaks=0)
def methods_and_objects_made_inside(c):
    f = c(lambda x: (Point(x, x * 2).total(x), product(Point(x, x), by=3)))
    return f(vector(3)), f(vector(3) + 1)


@program(graphs=1, breaks=0)
def arguments_that_are_written_to(c):
    f = c(lambda x: (written(x * 3), written(x)))
    x = vector(3)
    return f(x), f(x), x


@program()
def what_cannot_be_in_the_graph_runs_in_plain_python(c):
    f = c(lambda p: product(p) + 1)
    g = c(lambda x: with_a_weight_of_its_own(x) + 1)
    OUTSIDE.grad = None
    g(vector(3)).sum().backward()
    unknown = Unknown(vector(3))
    unknown.y = 4.0
    return f(unknown), attempt(f, Unknown(vector(3))), OUTSIDE.grad


test_program = program.tests()


def test_the_function_itself_is_as_it_was():
    def fn(x):
        fxstack.graph_break()
        return x + 1

    fxstack.nonstrict_trace(fn)
    compiled = fxstack.compile(lambda x: fn(x * 2) + 1, backend="eager")
    assert torch.equal(compiled(vector(3)), vector(3) * 2 + 2)
    assert fxstack.compile_log(compiled).break_count == 1
