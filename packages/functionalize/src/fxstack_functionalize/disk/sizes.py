"""Symbolic sizes of a program on disk: their part of the key, their text, and the guards of the program.

The hints of sizes are not part of the key. Every decision that depends on a hint is a guard of the ShapeEnv,
and these guards are stored with the program. A later process adds the guards again if they hold for its
sizes; otherwise it compiles anew. Symbols are found by name: the names follow from the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import sympy
import torch

from fxstack_functionalize.torch_compat import SymT, symbol_is_type
from fxstack_functionalize.tracer.inputs import Captured
from fxstack_functionalize.tracer.symbols import symbol_values
from fxstack_interchange import LoadError, SaveError
from fxstack_interchange.format.expressions import from_text, to_text

NO_SYMBOLS = SimpleNamespace(
    guards=(), var_to_range={}, replacements={}, deferred_runtime_asserts={}, backed_var_to_val={}
)
KINDS = (SymT.SIZE, SymT.FLOAT)
"""The kinds of symbols whose values are known when a program is called."""


class Sizes:
    """The symbols of a captured graph's inputs. The first ``_start`` guards are from before compiling."""

    def __init__(self, captured: Captured) -> None:
        env = captured.fake_mode.shape_env
        # A new ShapeEnv for a graph without symbols would import torch's whole compiler.
        self._env: Any = NO_SYMBOLS if env is None else env
        self._start = len(self._env.guards)

    @cached_property
    def _symbols(self) -> dict[str, sympy.Symbol]:
        return {str(symbol): symbol for symbol in self._env.var_to_range}

    @property
    def has_symbols(self) -> bool:
        """Whether there are symbols."""
        return bool(self._symbols)

    def facts(self) -> list[Any]:
        """Return all present facts about all symbols, for ``program_key``.

        Raise SaveError if a symbol depends on data.
        """
        if not all(symbol_is_type(symbol, KINDS) for symbol in self._symbols.values()):
            raise SaveError("a number that depends on data")
        ranges = sorted(
            [name, str(bounds.lower), str(bounds.upper)]
            for name, bounds in zip(self._symbols, self._env.var_to_range.values(), strict=True)
        )
        replaced = sorted(
            [str(symbol), to_text(replacement)] for symbol, replacement in self._env.replacements.items()
        )
        return [ranges, replaced, [to_text(guard.expr) for guard in self._env.guards]]

    def added_guards(self) -> list[str]:
        """Return the guards that compiling the program added.

        Raises:
            SaveError: if a guard contains data-dependent numbers, or is checked when the program runs.
        """
        added = self._env.guards[self._start :]
        symbols = set(self._symbols.values())
        if self._env.deferred_runtime_asserts or any(
            guard.size_oblivious or not guard.expr.free_symbols <= symbols for guard in added
        ):
            raise SaveError("something is assumed of a number that depends on data")
        return [to_text(guard.expr) for guard in added]

    def add_guards(self, texts: Sequence[str]) -> bool:
        """Add the guards of an earlier process. Add none and return False if a guard does not hold.

        Raises:
            LoadError: if a text is malformed.
        """
        guards = [from_text(text, self._symbols) for text in texts]
        if not all(expr.xreplace(self._hints) == sympy.true for expr in guards):
            return False
        for expr in guards:
            self._env.evaluate_expr(expr)
        return True

    def size(self, text: object) -> int | torch.SymInt:
        """Return the number that ``text`` describes.

        Raises:
            LoadError: if ``text`` is malformed, or contains unknown symbols.
        """
        expr = from_text(text, self._symbols)
        if not expr.free_symbols:
            return int(expr)
        hint = expr.xreplace(self._hints)
        if not hint.is_Integer:
            raise LoadError(f"{text!r:.100} is no size")
        symbolic: torch.SymInt = self._env.create_symintnode(expr, hint=int(hint))
        return symbolic

    @cached_property
    def _hints(self) -> dict[sympy.Symbol, sympy.Number]:
        return {symbol: sympy.sympify(n) for symbol, n in symbol_values(self._env).items()}
