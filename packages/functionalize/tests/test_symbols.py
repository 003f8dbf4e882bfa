"""Symbolic sizes at run time: the generated functions beside sympy's own evaluation."""

from types import SimpleNamespace

import pytest
import sympy
import torch
from compare import dynamic
from torch.fx.experimental.sym_node import SymNode

from fxstack_functionalize.tracer.symbols import make_filler

ROWS, COLUMNS = 7, 24


def binomial(m, n):
    """A size that has no text in Python."""
    node = n.node
    return torch.SymInt(SymNode(sympy.binomial(node.expr, m.node.expr), node.shape_env, int, None))


EXPRESSIONS = {
    "a symbol": lambda m, n: m,
    "a product": lambda m, n: 3 * m * n + 1,
    "a quotient": lambda m, n: (m + n) // 4,
    "a quotient of a quotient": lambda m, n: (n // 5) // (m // 2),
    "a remainder": lambda m, n: (m * 5) % 4,
    "the larger": lambda m, n: torch.sym_max(m, n - 20),
    "a power": lambda m, n: m**3,
    "rounded up": lambda m, n: -(-n // 7),
    "a floating-point quotient": lambda m, n: torch.sym_int(m / 2),
    "bits": lambda m, n: m & n,
    "a function of sympy's": binomial,
    "one of two": lambda m, n: torch.sym_ite(m > n, m, n + 1),
}


def values(nest_of, rows=ROWS, columns=COLUMNS):
    """(what the generated function gives for a tensor of this size, sympy's value of the nest's first number)."""
    (fake,) = dynamic([torch.empty(ROWS, COLUMNS)])
    nest = nest_of(*fake.shape)
    captured = SimpleNamespace(inputs=[SimpleNamespace(fake=fake)])
    found = make_filler(captured, nest)((torch.empty(rows, columns),))
    m, n = (size.node.expr for size in fake.shape)
    return found, nest[0].node.expr.xreplace({m: sympy.Integer(rows), n: sympy.Integer(columns)})


@pytest.mark.parametrize("size", [(ROWS, COLUMNS), (5, 99), (64, 3), (2, 2)])
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_has_the_value_that_sympy_gives_it(name, size):
    (found,), expected = values(lambda m, n: (EXPRESSIONS[name](m, n),), *size)
    assert found == int(expected)


def test_what_is_no_symbol_stays_the_object_that_it_is():
    marker = object()
    nest, _ = values(lambda m, n: (m, [n, 3, (marker, None)], True))
    assert nest == (ROWS, [COLUMNS, 3, (marker, None)], True)


def test_symbols_that_the_trace_has_found_out_are_numbers():
    (fake,) = dynamic([torch.empty(ROWS, COLUMNS)])
    assert fake.shape[0] == ROWS  # a guard, which makes it a number
    captured = SimpleNamespace(inputs=[SimpleNamespace(fake=fake)])
    (found,) = make_filler(captured, (fake.shape[0],))((torch.empty(ROWS, COLUMNS),))
    assert type(found) is int


def test_a_nest_without_symbols_is_given_back_as_it_is():
    nest = (1, [2, None])
    assert make_filler(SimpleNamespace(inputs=[]), nest)(()) is nest
