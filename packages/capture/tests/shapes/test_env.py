"""Shape environments go with the programs that they were made for."""

import gc
import weakref

import pytest
import sympy
from torch.fx.experimental.symbolic_shapes import DimDynamic
from torch.utils._sympy.functions import FloorDiv

from fxstack_capture.shapes.symbolic.env import Axioms, CaptureShapeEnv, NamedSource
from fxstack_capture.sources import Local

QUESTIONS = {
    "a comparison": lambda n: n > 4,
    "divisibility": lambda n: n % 2 == 0,
    "a division": lambda n: n // 2 > 2,
    "a product": lambda n: n * n != 49,
    "one size": lambda n: n == 6,
}


def after(ask):
    """A reference to an environment that has answered a question about a size of 6."""
    env, source = CaptureShapeEnv(tuple), NamedSource(Local("x"))
    symbol = env.create_symbol(6, source=source, dynamic_dim=DimDynamic.DYNAMIC)
    assert ask(env.create_symintnode(symbol, hint=6, source=source))
    assert len(env.guards) == 1
    return weakref.ref(env)


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_environment_does_not_stay_in_caches(question):
    gone = after(QUESTIONS[question])
    after(QUESTIONS[question])  # caches of ShapeEnv keep the last one that asked
    gc.collect()
    assert gone() is None


S = sympy.Symbol("s", integer=True, positive=True)
HALF = sympy.Le(FloorDiv(S, 2), 5, evaluate=False)
PLAIN = sympy.Le(S, 5, evaluate=False)
DOUBLED = sympy.Le(S, 10, evaluate=False)


def test_only_facts_with_divisions_are_simplified():
    axioms, seen = Axioms(), []
    axioms.update({HALF: sympy.true, PLAIN: sympy.false})
    axioms.simplify_divisions(lambda fact: seen.append(fact) or DOUBLED)
    assert seen == [HALF]
    assert axioms == {HALF: sympy.true, PLAIN: sympy.false, DOUBLED: sympy.true}
