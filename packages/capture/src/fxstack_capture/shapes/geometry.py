"""Symbolic sizes, strides, storage offsets and numbers of inputs, and the source of each symbol."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import DimDynamic, StrictMinMaxConstraint

from fxstack_capture import torch_compat
from fxstack_capture.shapes.contract import Solved
from fxstack_capture.shapes.dims import Hint, Range
from fxstack_capture.shapes.history import DYNAMIC, Inferred
from fxstack_capture.shapes.marks import DimRange
from fxstack_capture.shapes.policy import Kind, SizePlan, TensorPlan
from fxstack_capture.shapes.symbolic.env import CaptureShapeEnv, NamedSource
from fxstack_capture.shapes.symbolic.floats import Computed
from fxstack_capture.sources import Affine, Size, Source, StorageOffset, Stride
from fxstack_capture.torch_compat import ValueRanges, int_oo

Number: TypeAlias = int | torch.SymInt
"""A number of a fake: an int or float, or a symbolic number."""
_DIMS = {Kind.DUCK: DimDynamic.DUCK, Kind.OWN: DimDynamic.DYNAMIC}


@dataclass(frozen=True, slots=True)
class Binding:
    """The number at ``source`` equals ``expr``.

    Each binding becomes a guard or the definition of a symbol.
    """

    source: Source
    expr: sympy.Expr


@dataclass(frozen=True, slots=True)
class NamedSymbol:
    """The symbol of a named dimension of a contract.

    ``contract_checks`` compares the assumptions about the symbol with the contract.
    """

    symbol: sympy.Symbol
    """The symbol in ShapeEnv. It stands for the name, not for a size."""
    number: torch.SymInt
    """The symbol as a number of the trace."""
    solved: Solved
    """The value of the name in the traced call, with the rule in the contract."""

    @property
    def name(self) -> str:
        """The name in the contract."""
        return self.solved.root.name

    @property
    def label(self) -> str:
        """The name with the argument size that gave its value, for messages."""
        return f"{self.name} ({self.solved.seen})"

    @property
    def lowest(self) -> int:
        """The lowest value that the graph of the trace must serve. Below it, some size is 0 or 1."""
        return self.solved.low

    @property
    def highest(self) -> Any:
        """The highest value that the contract allows. Infinity if there is no upper bound."""
        high = self.solved.root.bounds.max
        return int_oo if high is None else high


class Geometry:
    """The maker of symbols for one trace. It records the number that each symbol stands for."""

    def __init__(self, make_env: Callable[[], CaptureShapeEnv]) -> None:
        """``make_env`` is called once, when the trace needs its first symbol. Most traces need no symbol."""
        self._make_env = make_env
        self._env: CaptureShapeEnv | None = None
        self.bindings: list[Binding] = []
        """The expression that each symbolic number must equal."""
        self._symbolic: set[Source] = set()
        """The sources in ``bindings``."""
        self.primary: dict[sympy.Symbol, tuple[Source, Any]] = {}
        """Maps a symbol to the source that defines it, and to the number that the trace has for it."""
        self.strict: dict[sympy.Symbol, Source] = {}
        """Maps symbols that must stay symbolic to their sources.

        If the program needs one value of such a symbol, the user gets an error.
        """
        self.named: dict[str, NamedSymbol] = {}
        """The symbols of named dimensions, by name."""
        self._of_shape_id: dict[str, torch.SymInt] = {}
        """Maps a ``shape_id`` to the first unbacked size with this id. Later sizes with the id must equal the
        first.
        """
        self.argument_names: Mapping[Source, str] = {}
        """The names that a shape contract gives to arguments, for messages."""

    @property
    def env(self) -> CaptureShapeEnv:
        """The ShapeEnv of the trace. The first access makes it."""
        if self._env is None:
            self._env = self._make_env()
        return self._env

    @property
    def computed(self) -> Mapping[sympy.Symbol, Computed]:
        """The definitions of symbols that are results of operations on floats."""
        return self._env.floats.computed if self._env is not None else {}

    @property
    def is_used(self) -> bool:
        """Whether the trace has made any symbol."""
        return self._env is not None

    def tensor(
        self, real: torch.Tensor, source: Source, plan: TensorPlan, like: Sequence[Number] | None = None
    ) -> tuple[list[Number], list[Number], Number]:
        """Return sizes, strides and storage offset for the fake of the tensor ``real``, as ``plan`` demands.

        ``like`` are the sizes of another tensor. If given, this tensor gets the same sizes.
        """
        if like is None:
            sizes = [
                self.size(size, Size(source, dim), plan.sizes[dim]) for dim, size in enumerate(real.size())
            ]
        else:
            sizes = [self.share(size, Size(source, dim)) for dim, size in enumerate(like)]
        strides = self._strides(real, source, plan, sizes)
        offset: Number = real.storage_offset()
        if plan.offset_dynamic:
            offset = self.number(offset, StorageOffset(source))
        return sizes, strides, offset

    def is_symbolic(self, source: Source) -> bool:
        """Whether the number at ``source`` is symbolic."""
        return source in self._symbolic

    def source_of(self, symbol: sympy.Symbol) -> Source | None:
        """Return the source of the number that ``symbol`` stands for. None for a symbol without a source."""
        definition = self.primary.get(symbol)
        return None if definition is None else definition[0]

    def size(self, value: int, source: Source, plan: SizePlan) -> Number:
        """Return a size of an input, with the value ``value`` in this call, as its plan demands.

        The size is constant, symbolic, unbacked, or a formula of a named dimension.
        """
        if plan.kind is Kind.STATIC:
            return value
        if plan.kind is Kind.UNBACKED:
            return self._unbacked_size(source, plan)
        if plan.kind is Kind.NAMED:
            return self._named_size(value, source, plan)
        constraint = None if plan.bounds is None else _constraint(plan.bounds, 2)
        expr = self.env.create_symbol(
            value, source=NamedSource(source), dynamic_dim=_DIMS[plan.kind], constraint_dim=constraint
        )
        if plan.strict:
            self.strict[expr] = source
        return self._make_number(expr, value, source)

    def _named_size(self, size: int, source: Source, plan: SizePlan) -> Number:
        """Return a size that is a formula of a named dimension.

        The first size with a name makes the symbol of the name.
        """
        named, solved = plan.named, plan.solved
        assert named is not None
        assert solved is not None
        direct = named.scale == 1 and named.offset == 0
        symbol = self.named.get(solved.root.name)
        if symbol is None:
            root_source = source if direct else Affine(source, named.scale, named.offset)
            symbol = self.named[solved.root.name] = self._named_symbol(solved, root_source)
            if direct:
                return symbol.number
        expr = named.scale * symbol.symbol + named.offset
        return self._make_number(expr, size, source)

    def _named_symbol(self, solved: Solved, source: Source) -> NamedSymbol:
        """Make the symbol of a named dimension.

        ``source`` gives the value of the name: a size, or ``Affine`` of a size.
        """
        high = solved.root.bounds.max
        value_range = ValueRanges(solved.low, int_oo if high is None else high)
        expr = self.env.create_symbol(
            solved.value,
            source=NamedSource(source),
            dynamic_dim=DimDynamic.DYNAMIC,
            constraint_dim=StrictMinMaxConstraint(False, value_range),
            do_not_specialize_zero_one=True,
        )
        number = self._make_number(expr, solved.value, source)
        assert isinstance(number, torch.SymInt)
        return NamedSymbol(expr, number, solved)

    def number(self, value: int, source: Source) -> Number:
        """Make a symbol for an integer that may be 0, 1 or negative.

        Such integers are strides, offsets and int arguments.
        """
        return self._make_number(self._free_symbol(value, source), value, source)

    def contracted_number(self, value: int, source: Source, hint: Hint) -> Number:
        """Make a symbol for an int argument. ``hint`` is the rule of a contract for the argument."""
        expr = self._free_symbol(value, source, hint.bounds)
        if hint.strict:
            self.strict[expr] = source
        return self._make_number(expr, value, source)

    def real_number(self, value: float, source: Source) -> Any:
        """Make a symbol for a float argument."""
        expr = self._free_symbol(value, source)
        number = self.env.create_symfloatnode(expr, hint=value, source=NamedSource(source))
        return self._register(expr, number, source)

    def drawn(self, value: float, source: Source) -> Any:
        """Make a symbol for a number that differs from run to run, such as a random number.

        ``value`` is an example. The number is an input of the graph. No guard may depend on it.
        """
        expr = self._free_symbol(value, source)
        self.env.drawn.add(expr)
        make = self.env.create_symintnode if type(value) is int else self.env.create_symfloatnode
        number = make(expr, hint=value, source=NamedSource(source))
        self.primary[expr] = source, number
        return number

    def drawn_at(self, expr: sympy.Basic) -> Source | None:
        """Return the source of a number that ``drawn`` made. None for any other number."""
        return self.primary[expr][0] if expr in self.env.drawn else None

    def _free_symbol(self, value: float, source: Source, bounds: Range | None = None) -> sympy.Expr:
        """Make a symbol that may be 0, 1 or negative. ShapeEnv assumes that symbols of sizes are at least 2."""
        return self.env.create_symbol(
            value,
            source=NamedSource(source),
            dynamic_dim=DimDynamic.DYNAMIC,
            constraint_dim=None if bounds is None else _constraint(bounds, -int_oo),
            positive=None,
            do_not_specialize_zero_one=True,
        )

    def _unbacked_size(self, source: Source, plan: SizePlan) -> torch.SymInt:
        """Make an unbacked size. No decision may depend on its value."""
        size = self.env.create_unbacked_symint(NamedSource(source))
        expr = size.node.expr
        # ShapeEnv demands that a node of the graph computes each unbacked symbol. This symbol is an input
        # instead.
        self.env.pending_fresh_unbacked_symbols.clear()
        self.env._constrain_range_for_size(expr)
        self.strict[expr] = source
        if plan.bounds is not None and plan.bounds.min is not None:
            torch_compat.check(size >= plan.bounds.min)
        if plan.bounds is not None and plan.bounds.max is not None:
            torch_compat.check(size <= plan.bounds.max)
        if plan.shape_id is not None:
            first = self._of_shape_id.setdefault(plan.shape_id, size)
            if first is not size:
                torch_compat.check(first == size)
        return self._register(expr, size, source)

    def _strides(
        self, real: torch.Tensor, source: Source, plan: TensorPlan, sizes: list[Number]
    ) -> list[Number]:
        """Return the strides of a fake. Each is a formula of sizes, a symbol or a constant."""
        strides: list[Any] = [None] * real.dim()
        real_strides = real.stride()
        # Begin with the smallest stride, because an inferred stride is a formula of the stride before it.
        for dim in sorted(range(real.dim()), key=lambda d: (real_strides[d], real.size(d), -d)):
            planned = plan.strides[dim]
            if isinstance(planned, Inferred):
                strides[dim] = strides[planned.dim] * sizes[planned.dim]
                if isinstance(strides[dim], torch.SymInt):
                    self._add_binding(Stride(source, dim), strides[dim].node.expr)
            elif planned is DYNAMIC and real_strides[dim] > 1:
                strides[dim] = self.number(real_strides[dim], Stride(source, dim))
            else:
                strides[dim] = real_strides[dim]
        return strides

    def share(self, number: Any, source: Source) -> Any:
        """Return ``number``, which another source has defined, as the number at ``source``.

        A binding demands that the two numbers are equal.
        """
        if isinstance(number, torch.SymInt | torch.SymFloat):
            self._add_binding(source, number.node.expr)
        return number

    def _make_number(self, expr: sympy.Expr, value: int, source: Source) -> Number:
        """Return ``expr`` as a number of the trace. ``value`` is its value in this call.

        The number is an int if the expression is constant.
        """
        number = self.env.create_symintnode(expr, hint=value, source=NamedSource(source))
        return number if type(number) is int else self._register(expr, number, source)

    def _add_binding(self, source: Source, expr: sympy.Expr) -> None:
        """Record that the number at ``source`` equals ``expr``."""
        self.bindings.append(Binding(source, expr))
        self._symbolic.add(source)

    def _register(self, expr: sympy.Expr, number: object, source: Source) -> Any:
        """Record that the number at ``source`` is ``number``, and return ``number``.

        The first source of a symbol defines the symbol.
        """
        self._add_binding(source, expr)
        if isinstance(expr, sympy.Symbol):
            self.primary.setdefault(expr, (source, number))
        return number


def _constraint(bounds: DimRange | Range, lowest: object) -> StrictMinMaxConstraint | None:
    """Return ``bounds`` as a ShapeEnv constraint, or None without bounds.

    If ``bounds`` has no lower bound, ``lowest`` is the lower bound.
    """
    if bounds.min is None and bounds.max is None:
        return None
    lower = lowest if bounds.min is None else max(bounds.min, 0)
    upper = int_oo if bounds.max is None else bounds.max
    return StrictMinMaxConstraint(False, ValueRanges(lower, upper))


def static_numbers(values: Sequence[Number]) -> list[int | None]:
    """Return plain numbers unchanged, and None in place of symbolic numbers.

    A ``TensorIs`` guard compares the plain numbers and ignores None.
    """
    return [value if type(value) is int else None for value in values]


def can_be_symbolic(value: float) -> bool:
    """Whether an int or float with this value can be symbolic. Otherwise it is a constant.

    An integer must be smaller than 2**62 in magnitude. A float must be finite and not zero.
    """
    if isinstance(value, int):
        return -(2**62) < value < 2**62
    # sympy does not distinguish 0.0 from -0.0.
    return math.isfinite(value) and value != 0
