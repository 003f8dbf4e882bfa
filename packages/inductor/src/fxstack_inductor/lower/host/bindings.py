"""Bind size symbols for the host: to sizes of inputs and results, and to numbers computed from sizes."""

from __future__ import annotations

from dataclasses import replace

import torch

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import Expr, Var, of_atom
from fxstack_inductor.lower.host.symbols import evaluator, size_expr
from fxstack_inductor.lower.node_queries import symbolic
from fxstack_inductor.lower.program import HostCall, Program, SymbolBinding


class Symbols:
    """The size symbols of one program. Each symbol is bound once."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.bound: set[str] = set()
        """Names of the symbols whose values the host knows."""
        self._sums: list[tuple[Expr, SymbolBinding]] = []
        """(expression, where its value is found) of each size that is a sum, like ``u0 - 1``.

        A sum is solved for its unknown symbol.
        """

    def bind_sizes(self, name: str, value: torch.Tensor) -> None:
        """Bind the symbols of the sizes and strides of the tensor ``name``."""
        for dim, size in enumerate(value.shape):
            if isinstance(size, torch.SymInt):
                self.bind(size_expr(size), SymbolBinding("", name, dim))
        if value.layout is not torch.strided:
            return
        for dim, stride in enumerate(value.stride()):
            if isinstance(stride, torch.SymInt):
                self.bind(size_expr(stride), SymbolBinding("", name, dim, stride=True))

    def knows(self, value: torch.SymInt) -> bool:
        """Whether the host knows every symbol in the size ``value`` before the next step runs."""
        try:
            return all(var.name in self.bound for var in size_expr(value).variables)
        except NotLowered:
            return False

    def knows_sizes(self, value: object) -> bool:
        """Whether the host knows all sizes of a result before the call runs; a kernel's loops need them."""
        results = value if isinstance(value, (tuple, list)) else (value,)
        shapes = (tuple(x.shape) for x in results if isinstance(x, torch.Tensor))
        return all(map(self.knows, symbolic(tuple(shapes))))

    def bind(self, expr: Expr, binding: SymbolBinding) -> None:
        """Let ``binding`` give the value of ``expr``, which is a symbol or a sum.

        A sum waits until ``define`` can solve it.
        """
        var = expr.as_var()
        if var is None:
            self._sums.append((expr, binding))
        elif var.name not in self.bound:
            self._add(var.name, binding)

    def _add(self, name: str, binding: SymbolBinding) -> None:
        """Record that ``binding`` gives the symbol ``name``."""
        self.bound.add(name)
        self._program.bindings.append(replace(binding, symbol=name))

    def define(self, value: object) -> None:
        """Bind the symbols of ``value`` that no size gives; called before each call is lowered.

        Sums are solved for their unknown symbol, and the host computes definitions.
        """
        self._solve()
        for number in symbolic(value):
            try:
                variables = size_expr(number).variables
            except NotLowered:
                continue
            for var in sorted(variables, key=lambda v: v.name):
                if var.definition and var.name not in self.bound:
                    self._compute(var)

    def _solve(self) -> None:
        """Bind the symbols of sums in which one symbol is unknown."""
        sums, self._sums = self._sums, []
        for expr, binding in sums:
            missing = [v for v in expr.variables if v.name not in self.bound and not v.definition]
            if len(missing) != 1:
                continue
            (var,) = missing
            rest = (expr - of_atom(var)).as_int()
            if rest is not None and binding.dim is not None:
                self._add(var.name, replace(binding, rest=rest))

    def _compute(self, var: Var) -> None:
        """Let the host compute the symbol from its definition, if the host knows all symbols in it."""
        function, names = evaluator(var.definition)
        if not self.bound.issuperset(names):
            return
        name = f"{var.name}_value"
        args = tuple(of_atom(Var(symbol, VarKind.INTEGER)) for symbol in names)
        self._program.steps.append(HostCall(name, function, args, {}))
        self._add(var.name, SymbolBinding("", name))
