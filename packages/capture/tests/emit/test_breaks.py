"""Frames go on behind a graph break: values on the stack, loops, handlers, contexts, cells, generators."""

import contextlib
import io

import pytest
import torch
from replacing import Replaced, check, outcome, same
from same import OwnStream

from fxstack_capture import optimize

X = torch.tensor([1.0, 2.0, 3.0])
OUT = io.StringIO()


class Context:
    def __init__(self, swallow):
        self.log, self.swallow = [], swallow

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, kind, value, trace):
        self.log.append(kind and kind.__name__)
        print("exit")
        return self.swallow


def gen(n, t):
    try:
        for i in range(n):
            got = yield t + i
            if got:
                yield got
    finally:
        print("closed")


def simple(x):
    y = x + 1
    print("a")
    return y * 2


def on_the_stack(x):
    return max(len([x, print("a"), x + 1]), 2, key=lambda v: v), (x * 2, print("b"), x.sum())


def keywords(x):
    return dict(r=x * 2, s=print("k", end="", flush=True), q=1)


def branch(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


def ternary_and_or(x):
    return (x.sum() > 0 and x.max() > 5) or (1 if x.min() > 0 else 2)


def tensor_while(x):
    n = 0
    while x.norm() < 100:
        x = x * 2
        n += 1
    return x, n


def in_loop(x):
    for i in range(3):
        x = x + i
        print(i)
    else:
        x = x * 2
    return x, i


def in_comprehension(x):
    return [print(v) or v + x for v in range(3)]


def loop_with_break(x):
    for i in [1, 2, 3]:
        print(i)
        if i == 2:
            break
        if x.sum() > 100:
            continue
        x = x + i
    return x


def caught(x):
    y = x + 1
    try:
        int("x" * int(y.sum().item()))
    except ValueError as error:
        return y, str(error)


def in_handler(x):
    try:
        raise KeyError("k")
    except KeyError as error:
        print("handling")
        x = x + 1
        return x, str(error)


def nested_handlers(x):
    seen = []
    for i in range(2):
        try:
            try:
                raise KeyError(i)
            except KeyError as error:
                x = x + i
                print("inner")
                raise ValueError(str(i)) from error
        except ValueError as error:
            print("outer")
            seen.append((repr(error.__cause__), repr(error.__context__)))
        finally:
            print("finally")
            seen.append(x)
    return seen


def bare_raise(x):
    try:
        raise KeyError(1)
    except KeyError:
        print("again")
        raise


def through_finally(x):
    try:
        print("in")
        return x + 1
    finally:
        print("out")
        x.add_(1)


def with_swallowed(x):
    with Context(True) as context:
        y = x * 2
        print("body")
        raise ValueError
    return context.log, y


def with_passed(x):
    with Context(False):
        print("body")
        x = x + 1
    with torch.no_grad():
        print("no grad")
        y = x * 2
    return x, y, torch.is_grad_enabled()


def cells(x):
    count = 1

    def inner(t):
        nonlocal count
        count += 1
        return t + count

    y = inner(x)
    print("a")
    return inner(y), count


def unbound(x):
    if x.sum() > 100:
        late = 1
    print("a")
    try:
        return late
    except UnboundLocalError as error:
        return str(error), x + 1


def deleted(x):
    y = x + 1
    del x
    print("a")
    return sorted(locals()), y


def sees_locals(x):
    y, z = 1, x * 2
    seen = sorted(eval("dir()", globals(), locals()))
    return seen, z


def generator_suspended(x):
    g = gen(3, x)
    first = next(g)
    print("a")
    second = g.send(5)
    print("b")
    return first, second, list(g)


def class_inside(x):
    class K:
        value = 1

        def get(self, t):
            print("method")
            return t * self.value

    return K().get(x + 1)


def deep(x):
    def a(t):
        return b(t) + 1

    def b(t):
        t = t * 2
        print("deep")
        return t + 3

    return a(x) * a(x + 1)


SPARSE = torch.eye(3).to_sparse()


def added(x, scale, other):
    return x * scale + other.to_dense()


PROGRAMS = [
    *(simple, on_the_stack, keywords, branch, ternary_and_or, tensor_while, in_loop, in_comprehension),
    *(loop_with_break, caught, in_handler, nested_handlers, bare_raise, through_finally, with_swallowed),
    *(with_passed, cells, unbound, deleted, sees_locals, generator_suspended, class_inside, deep),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_goes_on(program):
    replaced = Replaced()
    with contextlib.redirect_stdout(OwnStream()) as printed:
        expected = outcome(program, (X.clone(),))
    with contextlib.redirect_stdout(OwnStream()) as again:
        found = outcome(lambda x: replaced.call(program, x), (X.clone(),))
    assert same(found, expected), (found, expected)
    assert printed.getvalue() == again.getvalue()
    assert replaced.breaks


def test_one_resume_function_a_place():
    replaced = Replaced()
    replaced.call(in_loop, X)
    pieces = {id(made.code) for made in replaced.resumptions._made.values()}
    assert len(pieces) <= 4


def test_resume_functions_keep_names_and_lines():
    def f(x):
        print("a")
        y = x + 1
        raise ValueError(y.shape)

    with pytest.raises(ValueError) as caught:
        Replaced().call(f, X)
    frames = [t for t in caught.traceback if t.name == "f"]
    assert frames[-1].lineno - f.__code__.co_firstlineno + 1 == 3


def test_check_counts_breaks():
    with contextlib.redirect_stdout(OwnStream()):
        check(simple, X, breaks=1)


def test_dict_merge_names_the_callable_below():
    def f(x, keywords):
        y = x + 1
        return added(y, 1, **keywords)

    for keywords in ({"other": SPARSE}, {"scale": SPARSE}, [SPARSE]):
        expected = outcome(f, (X.clone(), keywords))
        compiled = optimize(lambda graph, _inputs: graph.forward)(f)
        assert same(outcome(compiled, (X.clone(), keywords)), expected)
