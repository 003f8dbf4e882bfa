"""Check a compiled graph's arguments: kernels rely on the sizes and dtypes of the trace.

A kernel computes addresses from the traced sizes, so a smaller tensor would lead to reads of foreign memory.
(A tensor with other strides is copied: ``runtime.layout``.) ``fxstack.compile`` compiles without this check, because
its guards have checked the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from fxstack_inductor.errors import ArgumentError

Compiled = Callable[..., tuple[Any, ...]]
Number = Any  # an int, or a SymPy expression (SymPy has no type annotations)
Values = dict[Number, int]


@dataclass(eq=False)
class Checked:
    """A compiled graph behind a check of its arguments; ``compile_graph`` returns it.

    Reads of other attributes go to ``call``.
    """

    call: Compiled
    """The compiled graph."""
    check: Arguments
    """Checks the inputs of a call."""
    takes_list: bool
    """Whether ``call`` is boxed: its only argument is the list of inputs."""

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        self.check(args[0] if self.takes_list else args)
        return self.call(*args)

    def __getattr__(self, name: str) -> Any:
        if name in ("call", "check", "takes_list"):  # ``copy`` asks before it has set the attributes
            raise AttributeError(name)
        return getattr(self.call, name)


def add_check(graph_module: GraphModule, call: Compiled) -> Compiled:
    """Return ``call``, the compiled ``graph_module``, behind a check that raises ``ArgumentError``."""
    takes_list = bool(getattr(call, "boxed", False))
    return Checked(call, Arguments(graph_module), takes_list)


class Arguments:
    """The requirements of a graph's placeholders on the arguments of a call."""

    def __init__(self, graph_module: GraphModule) -> None:
        placeholders = graph_module.graph.find_nodes(op="placeholder")
        self._values = [node.meta.get("val") for node in placeholders]
        self._names = [node.name for node in placeholders]
        self._demands = [*map(_demand, self._names, self._values)]
        self._env = next((e for e in map(_env_of, self._values) if e is not None), None)
        self._accepted: set[tuple[int, ...]] = set()
        """Values of symbols for which the guards hold."""

    def __call__(self, args: Sequence[Any]) -> None:
        """Raise ``ArgumentError`` or ``TypeError`` for the first argument that violates its requirements."""
        if len(args) != len(self._demands):
            raise TypeError(f"a compiled graph takes {len(self._demands)} inputs, not {len(args)}")
        symbols: Values = {}
        for demand, arg in zip(self._demands, args, strict=True):
            if demand is not None:
                demand.check(arg, symbols)
        if self._env is not None and symbols:
            exact = {symbol: sympy.Integer(value) for symbol, value in symbols.items()}
            self._check_relations(args, exact)

    def _check_relations(self, args: Sequence[Any], symbols: Values) -> None:
        """Check sizes that depend on several symbols, and the guards of the trace; ``symbols``: values of this call."""
        for demand, arg in zip(self._demands, args, strict=True):
            if isinstance(demand, _TensorDemand):
                demand.check_derived(arg, symbols)
        key = tuple(map(int, symbols.values()))
        if key in self._accepted:
            return
        assert self._env is not None
        for guard in self._env.guards:
            # A ``Ne`` guard only lets the trace omit a special case (broadcasting) with the same result.
            if not isinstance(guard.expr, sympy.Ne) and guard.expr.xreplace(symbols) == sympy.false:
                shown = ", ".join(f"{symbol} = {value}" for symbol, value in symbols.items())
                raise ArgumentError(
                    f"a compiled graph is for sizes with {guard.expr}, but in this call {shown}\n{_FIX}"
                )
        self._accepted.add(key)


@dataclass(frozen=True, slots=True)
class _TensorDemand:
    """The requirements on a tensor. Sizes and strides are numbers, symbols, or expressions of symbols."""

    name: str
    """The placeholder's name, for messages."""
    dtype: torch.dtype
    device: torch.device
    sizes: tuple[Number, ...]
    strides: tuple[Number, ...]
    """Empty for a tensor that is not strided."""
    bits: tuple[bool, bool]
    """Whether the traced tensor had a pending conjugation, and a pending negation."""

    def check(self, arg: object, symbols: Values) -> None:
        """Check everything that needs no symbol, and add the values of new symbols to ``symbols``."""
        if not isinstance(arg, torch.Tensor):
            raise TypeError(f"input {self.name} of a compiled graph is no tensor, but {arg!r}")
        if arg.dtype is not self.dtype or arg.device != self.device:
            raise self._error(_shown(arg))
        if (arg.is_conj(), arg.is_neg()) != self.bits:
            raise self._error(f"{_shown(arg)} whose conjugation or negation is not resolved")
        if arg.shape == self.sizes:
            return
        if arg.dim() != len(self.sizes):
            raise self._error(_shown(arg))
        for expected, actual in zip(self.sizes, arg.shape, strict=True):
            size = symbols.setdefault(expected, actual) if _is_symbol(expected) else expected
            if isinstance(size, int) and size != actual:
                raise self._error(_shown(arg), symbols)
        for expected, actual in zip(self.strides, arg.stride() if self.strides else (), strict=True):
            if _is_symbol(expected):
                symbols.setdefault(expected, actual)

    def check_derived(self, arg: torch.Tensor, symbols: Values) -> None:
        """Check the sizes that are expressions of symbols."""
        for expected, actual in zip(self.sizes, arg.shape, strict=True):
            if not isinstance(expected, int) and expected.xreplace(symbols) not in (actual, expected):
                raise self._error(_shown(arg), symbols)

    def _error(self, actual: str, symbols: Values | None = None) -> ArgumentError:
        """Return the exception that names the requirement and ``actual``, the tensor as ``_shown`` describes it."""
        sizes = ", ".join(map(str, self.sizes))
        demand = f"{_short(self.dtype)}[{sizes}] on {self.device}"
        where = ", ".join(f"{symbol} = {value}" for symbol, value in (symbols or {}).items())
        return ArgumentError(
            f"input {self.name} of a compiled graph must be {demand}{f' ({where})' if where else ''}, but it is {actual}\n{_FIX}"
        )


@dataclass(frozen=True, slots=True)
class _NumberDemand:
    """The requirement that a symbolic size has one value in all arguments of a call."""

    name: str
    expr: Number
    """The symbol."""

    def check(self, arg: object, symbols: Values) -> None:
        """Raise if ``arg`` is no int, or if an earlier argument gave the symbol another value; record its value."""
        if not isinstance(arg, int):
            raise TypeError(f"input {self.name} of a compiled graph is a size, but {arg!r} is no int")
        if symbols.setdefault(self.expr, arg) != arg:
            raise ArgumentError(
                f"input {self.name} of a compiled graph is the size {self.expr}, which is {symbols[self.expr]} in this call, "
                f"but it is {arg}"
            )


_FIX = "fix: trace the graph with such arguments and compile it for them; fxstack.compile does so where a call needs it."


def _demand(name: str, value: object) -> _TensorDemand | _NumberDemand | None:
    """Return the requirement of placeholder ``name`` with fake value ``value``, or None without requirements."""
    if isinstance(value, torch.SymInt):
        number = _number(value)
        return _NumberDemand(name, number) if _is_symbol(number) else None
    if not isinstance(value, torch.Tensor):
        return None
    strides = value.stride() if value.layout is torch.strided else ()
    sizes = tuple(map(_number, value.shape))
    bits = (value.is_conj(), value.is_neg())
    return _TensorDemand(name, value.dtype, value.device, sizes, tuple(map(_number, strides)), bits)


def _number(value: Any) -> Number:
    """Return an int, or the expression of a symbolic size."""
    if not isinstance(value, torch.SymInt):
        return int(value)
    expr = value.node.expr
    return int(expr) if expr.is_Integer else expr


def _env_of(value: object) -> ShapeEnv | None:
    """Return the environment of the symbols in a fake value: it has the guards. None if the value has no symbols."""
    numbers: tuple[Any, ...] = (value,)
    if isinstance(value, torch.Tensor):
        numbers = (*value.shape, *(value.stride() if value.layout is torch.strided else ()))
    symbolic = (number for number in numbers if isinstance(number, torch.SymInt))
    return next((number.node.shape_env for number in symbolic), None)


def _is_symbol(number: Number) -> bool:
    return isinstance(number, sympy.Symbol)


def _shown(arg: torch.Tensor) -> str:
    """Return a tensor as error messages show it, for example ``float32[2, 3] on cpu``."""
    return f"{_short(arg.dtype)}[{', '.join(map(str, arg.shape))}] on {arg.device}"


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
