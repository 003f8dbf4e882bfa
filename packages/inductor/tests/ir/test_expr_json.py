"""Index expressions as JSON, by equality with what was written."""

import json

import pytest

from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import Var, extremum, floordiv, integer, loop_var, mod, of_atom
from fxstack_inductor.ir.expr_json import expr_from_json, expr_to_json
from fxstack_interchange import LoadError, SaveError

N = of_atom(Var("s0", VarKind.SIZE))
M = of_atom(Var("u1", VarKind.INTEGER, definition="round(x)"))


@pytest.mark.parametrize(
    "expr",
    [
        integer(0),
        integer(-7),
        N * N * 3 + M - 1,
        floordiv(N + 5, M) * mod(N, integer(7)),
        extremum("max", N, extremum("min", M, integer(4))),
    ],
)
def test_there_and_back(expr):
    assert expr_from_json(json.loads(json.dumps(expr_to_json(expr)))) == expr


def test_loops_have_no_form():
    with pytest.raises(SaveError, match="is no size"):
        expr_to_json(loop_var("i", 8) + 1)


@pytest.mark.parametrize("content", ["s0", None, [["size", "s0", ""]], {}])
def test_malformed(content):
    with pytest.raises((LoadError, TypeError, ValueError)):
        expr_from_json(content)
