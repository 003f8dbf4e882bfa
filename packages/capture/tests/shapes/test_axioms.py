"""Facts of a ShapeEnv: those with divisions are simplified again when divisibility is learned."""

import sympy
from torch.utils._sympy.functions import FloorDiv

from fxstack_capture.shapes.symbolic.axioms import Axioms

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
