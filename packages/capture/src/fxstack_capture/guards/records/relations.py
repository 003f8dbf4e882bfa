"""Guard records about several values: identity, shared memory, and sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import sympy
from torch.utils._sympy.printers import PythonPrinter

from fxstack_capture.guards.records.check import Check, Reader, Relation
from fxstack_capture.guards.shape import shape_program
from fxstack_capture.guards.text import python_name, short
from fxstack_capture.guards.weak_references import WeakSources
from fxstack_capture.sources import Source


@dataclass(frozen=True, slots=True)
class SameObject(Relation):
    """The guarded value is the same object as the object at ``other``."""

    other: Source
    """The source of the other object."""

    cost = 1
    kinds = ("DUPLICATE_INPUT",)
    weak_fields = ("other",)
    failure = "the two objects are different"

    def relate(self, source: Source, register: Callable[[Source], int]) -> tuple[object, ...]:
        return ((register(source), register(self.other)),)

    def demand(self) -> str:
        return f"must be the same object as {self.other.name}"

    def condition(self, name: str) -> str:
        return f"{name} is {python_name(self.other.name)}"


@dataclass(frozen=True, slots=True)
class _OfAll(Relation):
    """A relation that holds between each two of the values: the guarded value and the values at ``others``."""

    others: tuple[Source, ...]
    """The sources of the other values."""

    weak_tuples = ("others",)

    def relate(self, source: Source, register: Callable[[Source], int]) -> tuple[object, ...]:
        return (tuple(map(register, (source, *self.others))),)

    def _names(self, name: str) -> list[str]:
        """Return the Python names of the values: ``name``, then the names of ``others``."""
        return [name, *(python_name(source.name) for source in self.others)]

    def _forbid(self, relation: str) -> str:
        """Return the text of ``demand``: no two values have ``relation``, for example "share memory with"."""
        text = f"must not {relation} {', '.join(source.name for source in self.others)}"
        if len(self.others) == 1:
            return text
        return f"{text}, and no two of these may {relation.removesuffix(' as').removesuffix(' with')}"


@dataclass(frozen=True, slots=True)
class AllDistinct(_OfAll):
    """The guarded object and the objects at ``others`` are pairwise different."""

    cost = 10
    kinds = ("TENSOR_MATCH", "NO_TENSOR_ALIASING")
    failure = "two of the objects are the same"

    def demand(self) -> str:
        return self._forbid("be the same object as")

    def condition(self, name: str) -> str:
        names = self._names(name)
        if len(names) == 2:
            return " is not ".join(names)
        return f"len({{{', '.join(f'id({value})' for value in names)}}}) == {len(names)}"


@dataclass(frozen=True, slots=True)
class NoOverlap(_OfAll):
    """The storages of the guarded tensor and of the tensors at ``others`` do not overlap in memory."""

    cost = 20
    kinds = ("TENSOR_MATCH", "STORAGE_OVERLAPPING")
    nanoseconds = 60
    failure = "two of the tensors share memory"

    def demand(self) -> str:
        return self._forbid("share memory with")

    def condition(self, name: str) -> str:
        return f"not share_memory({', '.join(self._names(name))})"


@dataclass(frozen=True, slots=True)
class SharesStorage(_OfAll):
    """The guarded tensor and the tensors at ``others`` are views of one storage."""

    cost = 5
    kinds = ("TENSOR_MATCH", "STORAGE_OVERLAPPING")
    failure = "one of the tensors does not share memory"

    def demand(self) -> str:
        return f"must share memory with {', '.join(source.name for source in self.others)}"

    def condition(self, name: str) -> str:
        return f"share_memory({', '.join(self._names(name))})"


@dataclass(frozen=True, slots=True)
class ShapeHolds(Relation):
    """A condition on sizes and other numbers: a boolean sympy expression over integer or float symbols.

    Each symbol is read from its source. The guard's own source is the source of the first symbol. ``text`` is
    the expression in the program's names, for example "x.size(0) > 1".
    """

    expr: sympy.Basic
    """The expression, for example ``s0 > 1``."""
    symbols: tuple[tuple[sympy.Symbol, Source], ...]
    """The symbols of the expression, each with its source."""
    text: str
    """The expression for messages, in the names of the program."""

    cost = 5
    kinds = ("SHAPE_ENV",)
    compared = ("expr",)
    is_of_frame = False

    def relate(self, _source: Source, register: Callable[[Source], int]) -> tuple[object, ...]:
        return (shape_program(self.expr, {symbol: register(source) for symbol, source in self.symbols}),)

    def demand(self) -> str:
        return f"must satisfy {self.text}"

    def condition(self, _name: str) -> str:
        named = {symbol: sympy.Symbol(python_name(source.name)) for symbol, source in self.symbols}
        with sympy.evaluate(False):
            return str(PythonPrinter().doprint(self.expr.xreplace(named)))

    def describe(self, _value: object, read: Reader) -> str:
        values = ", ".join(f"{source.name} = {short(read(source))}" for _symbol, source in self.symbols)
        return f"now {values}"

    def weaken(self, weak: WeakSources) -> Check:
        symbols = tuple((symbol, weak.source(source)) for symbol, source in self.symbols)
        return replace(self, symbols=symbols)
