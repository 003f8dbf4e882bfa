"""Launches of users' own Triton kernels in a graph. Each launch is one kernel and one way of calling it.

A launch is a call of an operator of namespace ``fxstack_triton`` that returns nothing. Its arguments are the
tensors and numbers that the program passed, in order, then ``grids``: three numbers for each configuration of
the kernel. The schema of the operator marks the tensors that the kernel writes to as mutated. The kernel,
constants and launch options belong to the operator, see ``KernelLaunch``. Every pass treats such a graph as a
graph of operators (``kernel_operators``), and eager torch can run it.

This module does not import Triton. A kernel is any object with a method ``run``, such as Triton's functions,
heuristics and autotuners.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

NAMESPACE: Final = "fxstack_triton"
TYPES: Final = MappingProxyType({"tensor": "Tensor", "integer": "SymInt", "number": "Scalar"})
"""Maps kinds of arguments to schema types. A ``descriptor`` becomes a tensor, its shape and its strides."""


@dataclass(frozen=True, slots=True)
class KernelArgument:
    """One argument of the launch.

    ``kind`` is tensor, integer, number, descriptor or constant. The value of a constant is ``value``.
    """

    name: str
    kind: str
    value: Any = None
    """For a descriptor: the function that makes the descriptor from a tensor, its shape and its strides."""


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """A kernel and one way of calling it.

    ``arguments`` are the arguments that the program passed: the first ``positional`` arguments by position,
    the others by name. ``options`` are launch options (``num_warps``). ``configs`` are the constants that
    each configuration of an autotuner sets; one empty mapping without an autotuner. ``written`` names the
    tensors and descriptors that the kernel writes to.
    """

    kernel: Any
    arguments: tuple[KernelArgument, ...]
    positional: int
    options: tuple[tuple[str, Any], ...] = ()
    configs: tuple[Mapping[str, Any], ...] = (MappingProxyType({}),)
    written: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The name of the kernel's Python function, below autotuners and heuristics."""
        inner = self.kernel
        while hasattr(inner, "fn") and not hasattr(inner, "__code__"):
            inner = inner.fn
        return str(getattr(inner, "__name__", "kernel"))

    @property
    def passed(self) -> tuple[KernelArgument, ...]:
        """Return the launch arguments that are also arguments of the operator: all but constants."""
        return tuple(argument for argument in self.arguments if argument.kind != "constant")

    @property
    def key(self) -> tuple[Any, ...]:
        """Return a key that is equal for launches that may share an operator."""
        arguments = tuple((a.name, a.kind, _identity(a.value)) for a in self.arguments)
        options = tuple((name, _identity(value)) for name, value in self.options)
        configs = tuple(tuple((n, _identity(v)) for n, v in c.items()) for c in self.configs)
        return (id(self.kernel), arguments, self.positional, options, configs, self.written)


def _identity(value: object) -> Any:
    """Return a key that distinguishes constants. 1, 1.0 and True have different keys."""
    if isinstance(value, (bool, int, float, str, bytes, type(None))):
        return (type(value).__name__, repr(value))
    return (type(value).__name__, id(value))


def schema_arguments(launch: KernelLaunch, *, functional: bool = False) -> str:
    """Return the parameters of the operator as schema text."""
    parts = []
    for position, argument in enumerate(launch.passed):
        writes = argument.name in launch.written and not functional
        alias = f"(a{position}!)" if writes else ""
        if argument.kind == "descriptor":
            parts.append(f"Tensor{alias} {argument.name}")
            parts.append(f"SymInt[] {argument.name}_shape, SymInt[] {argument.name}_strides")
        else:
            parts.append(f"{TYPES[argument.kind]}{alias} {argument.name}")
    return ", ".join([*parts, "SymInt[] launch_grids"])


def run(launch: KernelLaunch, args: Sequence[Any]) -> None:
    """Launch the kernel as the program does. ``args`` are the arguments of the operator."""
    *operands, grids = args
    values = iter(operands)
    passed = [(argument.name, _value(argument, values)) for argument in launch.arguments]
    named = dict(passed[launch.positional :])
    positional = [value for _, value in passed[: launch.positional]]
    options = dict(launch.options)
    launch.kernel.run(*positional, grid=_grid(launch, grids), warmup=False, **named, **options)


def _value(argument: KernelArgument, values: Any) -> Any:
    """Return the value of one kernel argument. ``values``: the operator's arguments that are not used yet."""
    if argument.kind == "constant":
        return argument.value
    if argument.kind == "descriptor":
        return argument.value(next(values), next(values), next(values))
    return next(values)


def _grid(launch: KernelLaunch, grids: Sequence[int]) -> Any:
    """Return the launch grid, or a function that returns the grid of the autotuner's configuration."""
    triples = [tuple(grids[k : k + 3]) for k in range(0, len(grids), 3)]
    if len(triples) == 1:
        return triples[0]

    def select_grid(meta: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the grid for the configuration that Triton has chosen.

        ``meta``: the constants of this configuration.
        """
        for config, triple in zip(launch.configs, triples, strict=True):
            if all(_identity(meta.get(name)) == _identity(v) for name, v in config.items()):
                return triple
        raise RuntimeError(
            f"kernel {launch.name}: the autotuner chose a configuration that it did not have when the program was "
            "compiled (early_config_prune created it); list it in @triton.autotune"
        )

    return select_grid
