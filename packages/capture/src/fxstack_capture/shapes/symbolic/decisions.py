"""Decisions about comparisons of one symbol (``linear_inequalities``) without ShapeEnv's machinery.

A decision updates ShapeEnv as ShapeEnv itself would: it adds a guard, narrows a range, and adds facts for
later queries.
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
    """The decisions about comparisons in one environment.

    ``CaptureShapeEnv.evaluate_expr`` asks this class before ShapeEnv decides.
    """

    def __init__(self) -> None:
        self._questions: dict[sympy.Basic, Question | bool | None] = {}
        """Maps a comparison to its question, so that each comparison is parsed once."""
        self._excluded: dict[sympy.Symbol, set[int]] = {}
        """Maps a symbol to values that it does not have. They come from decided ``!=`` comparisons."""

    def decide(self, env: ShapeEnv, relation: sympy.Basic, hint: object) -> bool | None:
        """Return the truth value of a comparison in this trace. None if ShapeEnv must decide.

        If known facts do not imply the truth value, add a guard. ``hint`` is the truth value for the sizes of
        this call.
        """
        parsed = self._question(relation)
        if not isinstance(parsed, Question):
            return parsed
        symbol = parsed.symbol
        if symbol not in env.backed_var_to_val or symbol in env.replacements:
            return None
        answer = self._implied_answer(env, parsed)
        if answer is not None:
            return answer
        # If the symbol has only one value left, ShapeEnv must replace the symbol in all of its expressions.
        specialises = parsed.is_point and hint is not parsed.negated
        if type(hint) is not bool or specialises or not _is_plain(env):
            return None
        if not torch_compat.suppress_guards_tls():
            self._assume(env, relation, parsed, hint)
        return hint

    def _question(self, relation: sympy.Basic) -> Question | bool | None:
        """Return the parsed comparison: a question, or its truth value. None if ShapeEnv must decide."""
        if relation not in self._questions:
            self._questions[relation] = question(relation)
        return self._questions[relation]

    def _implied_answer(self, env: ShapeEnv, parsed: Question) -> bool | None:
        """Return the answer that the symbol's range and excluded values imply. None if they imply no answer."""
        if parsed.is_point and parsed.low in self._excluded.get(parsed.symbol, ()):
            return parsed.negated
        value_range = env.var_to_range.get(parsed.symbol)
        return None if value_range is None or not value_range.is_int else parsed.answer(*_bounds(value_range))

    def _assume(self, env: ShapeEnv, relation: sympy.Basic, parsed: Question, truth: bool) -> None:
        """Guard that the comparison ``relation`` has the truth value ``truth``, and update the range of its symbol."""
        guard = relation if truth else relation.negated
        env._log_guard("eval", guard, forcing_spec=False)
        env.guards.append(ShapeGuard(guard, _NOWHERE, size_oblivious=False))
        if parsed.low is not None and parsed.is_point:
            self._excluded.setdefault(parsed.symbol, set()).add(parsed.low)
            env.axioms.update(_facts_of_inequality(parsed.symbol, parsed.low))
        else:
            _narrow(env, parsed.symbol, *parsed.remaining(answer=truth))


def _is_plain(env: ShapeEnv) -> bool:
    """Whether a guard can be added directly: ``env`` accepts guards now, and no other component must be
    notified.
    """
    return not (env.frozen or env._translation_validation_enabled)


def _bounds(value_range: ValueRanges[Any]) -> tuple[int | None, int | None]:
    """Return the bounds of a range. None stands for a missing bound."""
    low = None if value_range.lower is -int_oo else int(value_range.lower)
    return low, None if value_range.upper is int_oo else int(value_range.upper)


def _narrow(env: ShapeEnv, symbol: sympy.Symbol, low: int | None, high: int | None) -> None:
    """Intersect the range of ``symbol`` with ``low`` and ``high`` (None: no bound).

    If one value remains, replace the symbol by it.
    """
    bounds = ValueRanges(-int_oo if low is None else low, int_oo if high is None else high)
    env._update_var_to_range(symbol, bounds)
    narrowed = env.var_to_range[symbol]
    if narrowed.is_singleton():
        env._set_replacement(symbol, narrowed.lower, "range_refined_to_singleton")
    # The cached answers may be None for comparisons that the narrower range decides.
    torch_compat.maybe_evaluate_static.cache_clear()


def _facts_of_inequality(symbol: sympy.Symbol, value: int) -> dict[sympy.Basic, sympy.Basic]:
    """Return the facts that follow from ``symbol != value``, with their truth values. Later queries of
    ShapeEnv use them.
    """
    number = sympy.Integer(value)
    sides = ((symbol, number), (number, symbol))
    return {
        relation(*pair, evaluate=False): truth
        for pair in sides
        for relation, truth in ((sympy.Eq, sympy.false), (sympy.Ne, sympy.true))
    }
