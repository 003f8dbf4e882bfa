"""The ShapeEnv of a trace: torch's ShapeEnv with the user's location for each guard.

torch's own class walks the Python stack to find that location. This class does not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import sympy
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

from fxstack_capture import torch_compat
from fxstack_capture.shapes.symbolic.decisions import LineDecisions
from fxstack_capture.shapes.symbolic.floats import FloatArithmetic, as_functions
from fxstack_capture.shapes.symbolic.nodes import Memo, remembering
from fxstack_capture.shapes.symbolic.overflow_guards import OverflowGuards, fits, unbounded_parts
from fxstack_capture.sources import Source
from fxstack_capture.torch_compat import FloorDiv, GuardSource, SLoc
from fxstack_capture.torch_compat import Source as TorchSource

UserStack = tuple[tuple[str, int, str], ...]
"""File, line and function of each frame of the program, innermost last."""
Class = TypeVar("Class", bound=type)


class NamedSource(TorchSource):
    """An fxstack source in the form that ShapeEnv expects. ``Geometry`` makes one for each symbol."""

    def __init__(self, source: Source) -> None:
        self.source = source

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def guard_source(self) -> GuardSource:
        """The kind of source. ShapeEnv requires it; fxstack does not use it."""
        return GuardSource.LOCAL

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedSource) and self.source == other.source

    def __hash__(self) -> int:
        return hash(self.source)


class Axioms(dict[sympy.Basic, sympy.Basic]):
    """The facts of a ShapeEnv and their truth values. Only ``update`` adds facts, as in ShapeEnv's own
    dictionary.

    When ShapeEnv learns that a number is divisible, it simplifies all of its facts again, because a
    ``FloorDiv`` may have become a ``CleanDiv``. With thousands of facts, each pass would visit every
    subexpression of every fact. Only facts with a ``FloorDiv`` can change, so this class simplifies only
    these.
    """

    def __init__(self) -> None:
        super().__init__()
        self._divisions: dict[sympy.Basic, sympy.Basic] = {}
        """The facts with a ``FloorDiv``."""

    def update(self, facts: Any) -> None:  # type: ignore[override]
        """Add facts with their truth values. ShapeEnv calls this method."""
        super().update(facts)
        self._divisions.update((fact, truth) for fact, truth in facts.items() if fact.has(FloorDiv))

    def simplify_divisions(self, simplify: Callable[[sympy.Basic], sympy.Basic]) -> None:
        """Add the simplified forms of the facts with divisions.

        ``CaptureShapeEnv`` calls this after ShapeEnv has learned that a number is divisible.
        """
        if self._divisions:
            super().update({simplify(fact): truth for fact, truth in self._divisions.items()})


_CACHED = type(functools.lru_cache(str.upper))
_MISSING = object()


def with_own_caches(cls: Class) -> Class:
    """Replace the process-wide method caches of the base class by the dictionary ``answers`` of each
    instance.

    A method under ``functools.lru_cache`` would keep its environment, and all objects that the environment
    refers to, alive for the next few hundred calls of any environment. ``get_implications`` would keep them
    forever.
    """
    for name, method in vars(cls.__mro__[1]).items():
        if isinstance(method, _CACHED) and name not in vars(cls):
            setattr(cls, name, _cache_in_instance(name, method.__wrapped__))
    return cls


def _cache_in_instance(name: str, compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``compute`` as a method that caches its results in ``answers`` of the instance.

    The keys consist of ``name`` and the arguments.
    """

    @functools.wraps(compute)
    def method(self: Any, *args: Any, **settings: Any) -> Any:
        """Return the cached result, or compute it."""
        key = name, args, tuple(settings.items())
        answer = self.answers.get(key, _MISSING)
        if answer is _MISSING:
            answer = self.answers[key] = compute(self, *args, **settings)
        return answer

    return method


@with_own_caches
class CaptureShapeEnv(ShapeEnv):
    """torch's ShapeEnv, with the user's stack for each guard, and with fast, exact decisions."""

    settings: Any
    """Torch's frozen record of settings."""
    _resimplify_floor_div_axioms: bool
    """Whether ShapeEnv has learned since the last query that a number is divisible. ShapeEnv sets it."""

    def __init__(
        self, user_stack: Callable[[], UserStack], *, asserts_signs: bool = True, **settings: object
    ) -> None:
        """``user_stack`` returns the program's stack at the time of the call.

        ``settings`` are keyword arguments of ShapeEnv.
        """
        self.answers: dict[Any, Any] = {}
        """The results of the methods that ``with_own_caches`` has replaced, by name and arguments."""
        self.replaced = 0
        """The number of replacements so far. torch keeps this count itself since version 2.12."""
        super().__init__(**settings)
        self._user_stack = user_stack
        self.guard_stacks: list[tuple[sympy.Basic, UserStack]] = []
        """The decided comparisons with the user's stack. The order is that of ``guards``."""
        self.memo = Memo()
        """The cached results of operations on symbolic numbers."""
        self.axioms = Axioms()
        """The facts that follow from decided comparisons."""
        self._decisions = LineDecisions()
        """Fast decisions about comparisons of one symbol."""
        self.floats = FloatArithmetic()
        """The symbols that stand for operations on floats."""
        self._overflow_guards = OverflowGuards(self.backed_var_to_val)
        """Decides which expressions a guard with 64-bit integers cannot compute."""
        # An environment with another version empties ShapeEnv's other caches when it uses them. Without its
        # own version, this environment would stay in these caches forever.
        self._version_counter = id(self)
        self._needs_scalar_outputs = False
        """Whether the trace has called ``item()`` on a tensor."""
        self.asserts_signs = asserts_signs
        """Whether the graph asserts that the base of a power is not negative.

        If not, the graph ends before the power.
        """
        self.drawn: set[sympy.Symbol] = set()
        """Symbols of numbers that differ from run to run. No decision may depend on them."""

    def depends_on_drawn(self, expr: sympy.Basic) -> bool:
        """Whether ``expr`` is computed from numbers that differ from run to run."""
        if not self.drawn or not isinstance(expr, sympy.Basic):
            return False
        return not self.drawn.isdisjoint(as_functions(expr, self.floats.computed).free_symbols)

    def origin_of(self, expr: sympy.Basic) -> str:
        """Return a phrase for messages about ``expr``, such as "a number drawn at random (zf0)".

        No decision may depend on ``expr``.
        """
        origin = "drawn at random" if self.depends_on_drawn(expr) else "computed from a tensor"
        return f"a number {origin} ({expr})"

    def demand_decided(self, expr: sympy.Basic) -> None:
        """Raise GuardOnDataDependentSymNode if ``expr`` differs from run to run.

        Called before an operation that needs the value of ``expr``, such as a division by it.
        """
        if self.depends_on_drawn(expr):
            raise GuardOnDataDependentSymNode(expr, f"the value of {expr} differs between runs")

    def evaluate_expr(
        self,
        orig_expr: sympy.Basic,
        hint: object = None,
        fx_node: object = None,
        size_oblivious: bool = False,
        fallback_value: bool | None = None,
        **settings: object,
    ) -> Any:
        """Return the value of ``orig_expr`` in this trace, and guard it.

        ShapeEnv's users call this method for each decision. Raises GuardOnDataDependentSymNode if no decision may
        depend on the expression.
        """
        if self.depends_on_drawn(orig_expr):
            implied = self._maybe_evaluate_static(orig_expr)
            if implied is not None:
                return implied
            self.demand_decided(orig_expr)
        if self._overflow_guards.may_overflow(orig_expr):
            self._specialize(orig_expr)
            if hint is not None and orig_expr.free_symbols <= self.backed_var_to_val.keys():
                # The hint is exact. sympy's functions would treat values beyond 64 bits as infinite.
                return sympy.sympify(hint)
        if not size_oblivious:
            decided = self._decisions.decide(self, orig_expr, hint)
            if decided is not None:
                return sympy.true if decided else sympy.false
        return super().evaluate_expr(orig_expr, hint, fx_node, size_oblivious, fallback_value, **settings)

    def demand_words(self, expr: sympy.Basic, may_grow: Callable[[sympy.Symbol], bool]) -> bool:
        """Whether graphs can compute ``expr``. Their integers have 64 bits.

        Called before a node of the graph computes ``expr``. If ``may_grow`` is true for one of its symbols,
        guard that the sums, products and powers in ``expr`` fit.
        """
        if self.depends_on_drawn(expr):
            return True
        if self._overflow_guards.may_overflow(expr):
            return False
        for part in unbounded_parts(expr):
            symbols = part.free_symbols
            if part.is_integer and symbols <= self.backed_var_to_val.keys() and any(map(may_grow, symbols)):
                self.evaluate_expr(fits(part))
        return True

    def _specialize(self, expr: sympy.Basic) -> None:
        """Guard that all symbols of ``expr`` have their current values. They are constants from then on."""
        for symbol in expr.free_symbols & self.backed_var_to_val.keys():
            if symbol not in self.replacements and symbol != expr:
                super().evaluate_expr(symbol, self.backed_var_to_val[symbol])

    def _maybe_evaluate_static(self, expr: sympy.Basic, **settings: object) -> Any:
        """Decide ``expr`` from known facts alone, as ShapeEnv does.

        Facts with divisions are simplified before.
        """
        if self._resimplify_floor_div_axioms and settings.get("axioms") is None:
            self._resimplify_floor_div_axioms = False
            self.axioms.simplify_divisions(self.simplify)
        return super()._maybe_evaluate_static(expr, **settings)

    # ShapeEnv calls ``_maybe_evaluate_static.cache_clear`` to empty the cache of its own method.
    vars(_maybe_evaluate_static)["cache_clear"] = torch_compat.maybe_evaluate_static.cache_clear

    def _set_replacement(self, a: sympy.Symbol, tgt: sympy.Expr, msg: str) -> None:
        """Replace a symbol as ShapeEnv does, and count the replacement. The memo refreshes when the count has
        changed.
        """
        self.replaced += 1
        super()._set_replacement(a, tgt, msg)

    def create_symintnode(self, sym: sympy.Expr, **settings: object) -> Any:
        """Make a number as ShapeEnv does, with a node that caches its results."""
        number = super().create_symintnode(sym, **settings)
        if not isinstance(number, int):
            remembering(number.node)
        return number

    @contextmanager
    def scalar_outputs_allowed(self) -> Iterator[None]:
        """Allow ``item()`` to return an unbacked symbol inside the block, even if the options forbid it."""
        # Later stages trace the graph again and need the setting as well, so ``close`` sets it for good.
        self._needs_scalar_outputs = True
        before = self.settings
        self.settings = replace(before, allow_scalar_outputs=True)
        try:
            yield
        finally:
            self.settings = before

    def create_symfloatnode(self, sym: sympy.Expr, **settings: object) -> Any:
        """Make a number as ShapeEnv does, with a node that caches its results."""
        number = super().create_symfloatnode(sym, **settings)
        remembering(number.node)
        return number

    def create_unbacked_symfloat(self, *args: object, **settings: object) -> Any:
        """Make a number as ShapeEnv does, with a node that caches its results."""
        number = super().create_unbacked_symfloat(*args, **settings)
        remembering(number.node)
        return number

    def create_unbacked_symint(self, *args: object, **settings: object) -> Any:
        """Make a number as ShapeEnv does, with a node that caches its results."""
        number = super().create_unbacked_symint(*args, **settings)
        remembering(number.node)
        return number

    def close(self) -> None:
        """Finish the trace.

        The environment lives on in the graph. It drops its reference to the trace, because the trace holds
        the program's tensors.
        """
        if self._needs_scalar_outputs:
            self.settings = replace(self.settings, allow_scalar_outputs=True)
        self._user_stack = tuple

    def _log_guard(self, prefix: str, g: object, forcing_spec: bool) -> None:  # noqa: ARG002
        """Record the user's stack of the guard ``g``. ShapeEnv calls this method for each new guard."""
        if prefix == "eval":  # Other guards are suppressed or become assertions in the graph.
            self.guard_stacks.append((g, self._user_stack()))

    def _get_stack_summary(self, *_args: object, **_kwargs: object) -> tuple[SLoc, str]:
        """Return no location. ShapeEnv's own method would walk the Python stack, which is slow."""
        return SLoc("", ""), ""
