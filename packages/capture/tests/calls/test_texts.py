"""Texts that are printed and nothing else: made of the numbers and strings of each call, without a graph for each."""

import contextlib
import copy
import io

import pytest
import torch
from counting import Counting

import fxstack_capture as fx
from fxstack_capture import native

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")


def number(x, n, name):
    print(f"step {n}")
    return x * n


def specifications(x, n, name):
    print(f"{n:05d}|{n!r:>6}|{n=}|{n:,}|{n / 3:.3e}", n, end="!\n", flush=True)
    return x * n


def string(x, n, name):
    print(name)
    return x * 2


def mixed(x, n, name):
    print("in", f"{name:>9}|{name!r}: {n * 0.5:.2f} {x.shape}", name, 7)
    print(f"{name}{name!a}")
    return x * n


def over_a_break(x, n, name):
    y = (x * n).sum()
    print(f"{name}: {y.item():.3f} at {n}")
    return y * 2


def in_a_function(x, n, name):
    def report(value):
        print(f"[{value}] {n}")
        return value * 2

    return x * report(n)


def in_a_loop(x, n, name):
    for i in range(3):
        print(f"[{i}] {name} {n:.1f}")
        x = x * n
    return x


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.step = 0

    def forward(self, x, n, name):
        self.step += 1
        print(f"{self.step} {0.1 * self.step:.4f}")
        return x * self.step


def observe(fn, calls):
    """What is printed, and what comes back (the error in the place of a result)."""
    results = []
    with contextlib.redirect_stdout(io.StringIO()) as out:
        for n, name in calls:
            try:
                results.append(fn(torch.arange(3.0), n, name))
            except Exception as error:
                results.append((type(error), str(error)))
    return out.getvalue(), repr(results)


def check(fn, calls):
    """Compiled does as plain; how many graphs that took."""
    backend = Counting()
    expected = observe(copy.deepcopy(fn), calls)
    assert observe(fx.optimize(backend)(fn), calls) == expected
    return len(backend.graphs)


GRAPHS = {number: 2, specifications: 2, string: 1, mixed: 2, in_a_function: 2, in_a_loop: 2}


@pytest.mark.parametrize(("fn", "graphs"), [*GRAPHS.items(), (over_a_break, 4)])
def test_not_a_graph_for_each(fn, graphs):
    assert check(fn, [(n, f"s{n}") for n in range(2, 14)]) <= graphs


def test_steps_of_a_model():
    assert check(Model(), [(2, "")] * 12) <= 3


class Named(str):
    __slots__ = ()

    def __format__(self, spec):
        return f"<{spec}>"

    def __str__(self):
        return "named"


@pytest.mark.parametrize("fn", GRAPHS)
@pytest.mark.parametrize("odd", [Named("s"), "", "{0}%s", 'q"\\\n', "\ud800", None, 7, 2.5, ["s"]])
def test_other_strings(fn, odd):
    check(fn, [(2, "a"), (3, "b"), (4, odd), (5, "c"), (6, odd)])


@pytest.mark.parametrize("fn", GRAPHS)
@pytest.mark.parametrize("odd", [2.5, True, -7, 0, 1, 10**30, -0.0, float("nan"), float("inf"), "t"])
def test_other_numbers(fn, odd):
    check(fn, [(2, "a"), (3, "b"), (odd, "c"), (4, "d"), (odd, "e")])


def wrong_for_all(x, n, name):
    print(f"{n:q}")
    return x


def wrong_for_some(x, n, name):
    print(f"{n * 20000:c}")
    return x


def width(x, n, name):
    print(f"{name:{n}}|{n:{'>'}{n}}")
    return x * n


def compared(x, n, name):
    print(name, f"{name}-{n}")
    return x + 1 if name == "s3" else x


def by_name(x, n, name):
    print(n, name, sep=f"{n}", end=f"{name}\n")
    return x


def method(x, n, name):
    print(f"{n}".rjust(5), f"{name}".upper(), f"{n}" == "3", len(f"{name}"))
    return x


def chosen(x, n, name):
    print(name if n > 3 else f"{n}", f"{'a' if n > 5 else name}")
    return x


def raising(x, n, name):
    try:
        print(f"{name} {n}", 1 // (n - 4))
    except ZeroDivisionError as error:
        print(f"{name}: {error}")
    return x


def returned(x, n, name):
    print(text := f"{name} {n}")
    return x, text


def shadowed(x, n, name):
    print = "".join  # noqa: A001
    return x, print(f"{name} {n}")


@pytest.mark.parametrize(
    "fn",
    [wrong_for_all, wrong_for_some, width, compared, by_name, method, chosen, raising, returned] + [shadowed],
)
def test_as_plain(fn):
    check(fn, [(n, f"s{n}") for n in range(2, 8)])
