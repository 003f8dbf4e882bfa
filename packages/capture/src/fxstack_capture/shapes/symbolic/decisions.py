"""Decisions about comparisons of one symbol (``lines``) for a ShapeEnv, without its general machinery.

What is left behind is what ShapeEnv itself would leave: a guard, a narrower range, and facts for what is asked of it later.
"""

from __future__ import annotations

from typing import Any

import sympy
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from fxstack_capture import torch_compat
from fxstack_capture.shapes.symbolic.linear_inequalities import Question, question
from fxstack_capture.torch_compat import ShapeGuard, SLoc, ValueRanges, int_oo

_NOWHERE = SLoc("", "")


class LineDecisions:
    """For one environment."""

    def __init__(self) -> None:
        self._asked: dict[sympy.Basic, Question | bool | None] = {}
        self._excluded: dict[sympy.Symbol, set[int]] = {}

    def decide(self, env: ShapeEnv, relation: sympy.Basic, hint: object) -> bool | None:
        """The truth of a comparison for this trace, guarded where it is not known; None where this is for ShapeEnv.

        ``hint``: what it is for the present sizes.
        """
        asked = self._question(relation)
        if not isinstance(asked, Question):
            return asked
        symbol = asked.symbol
        if symbol not in env.backed_var_to_val or symbol in env.replacements:
            return None
        known = self._known(env, asked)
        if known is not None:
            return known
        specialises = asked.is_point and hint is not asked.negated
        if type(hint) is not bool or specialises or not _is_plain(env):
            return None
        if not torch_compat.suppress_guards_tls():
            self._assume(env, relation, asked, hint)
        return hint

    def _question(self, relation: sympy.Basic) -> Question | bool | None:
        if relation not in self._asked:
            self._asked[relation] = question(relation)
        return self._asked[relation]

    def _known(self, env: ShapeEnv, asked: Question) -> bool | None:
        if asked.is_point and asked.low in self._excluded.get(asked.symbol, ()):
            return asked.negated
        known = env.var_to_range.get(asked.symbol)
        return None if known is None or not known.is_int else asked.answer(*_bounds(known))

    def _assume(self, env: ShapeEnv, relation: sympy.Basic, asked: Question, truth: bool) -> None:
        guard = relation if truth else relation.negated
        env._log_guard("eval", guard, forcing_spec=False)
        env.guards.append(ShapeGuard(guard, _NOWHERE, size_oblivious=False))
        if asked.low is not None and asked.is_point:
            self._excluded.setdefault(asked.symbol, set()).add(asked.low)
            env.axioms.update(_differs(asked.symbol, asked.low))
        else:
            _narrow(env, asked.symbol, *asked.remaining(answer=truth))


def _is_plain(env: ShapeEnv) -> bool:
    """Whether guards may be added, and nothing else has to be told of them."""
    return not (env.frozen or env._translation_validation_enabled)


def _bounds(known: ValueRanges[Any]) -> tuple[int | None, int | None]:
    low = None if known.lower is -int_oo else int(known.lower)
    return low, None if known.upper is int_oo else int(known.upper)


def _narrow(env: ShapeEnv, symbol: sympy.Symbol, low: int | None, high: int | None) -> None:
    bounds = ValueRanges(-int_oo if low is None else low, int_oo if high is None else high)
    env._update_var_to_range(symbol, bounds)
    now = env.var_to_range[symbol]
    if now.is_singleton():
        env._set_replacement(symbol, now.lower, "range_refined_to_singleton")
    torch_compat.maybe_evaluate_static.cache_clear()


def _differs(symbol: sympy.Symbol, value: int) -> dict[sympy.Basic, sympy.Basic]:
    number = sympy.Integer(value)
    sides = ((symbol, number), (number, symbol))
    return {
        relation(*pair, evaluate=False): truth
        for pair in sides
        for relation, truth in ((sympy.Eq, sympy.false), (sympy.Ne, sympy.true))
    }
