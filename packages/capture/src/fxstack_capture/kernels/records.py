"""The record of a launch of a user's Triton kernel, and the arguments of the launch operator.

Grids and heuristics are Python functions of the program. A ``Caller`` calls them: either capture, which
traces them, or Python itself. The grid function of an autotuned kernel is called once for each configuration,
because the grid may depend on the configuration.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

import torch

from fxstack_interchange.operators.kernels import KernelArgument, KernelLaunch

LOG = logging.getLogger(__name__)


class LaunchRefused(Exception):  # noqa: N818 - it is a reason
    """Raised if a launch cannot be a node.

    The text is the reason. The caller reports it as a graph break or an error.
    """


class Caller(Protocol):
    """The caller of the program's Python functions.

    ``launching`` implements it for traced code and for Python.
    """

    def call(self, fn: Callable[..., Any], argument: dict[str, Any]) -> Any:
        """Return the result of ``fn``, a grid function or a heuristic.

        ``argument`` maps the names of the kernel's arguments to their values.
        """

    def plain(self, value: object) -> Any:
        """Return the current value of ``value`` as a constant."""


@dataclass
class Layers:
    """A kernel's function and its wrappers. The outermost wrapper is first."""

    function: Any
    """The ``JITFunction`` or ``InterpretedFunction`` under the wrappers."""
    tuners: list[Any] = field(default_factory=list)
    """The autotuners around the function. A launch with two autotuners is refused."""
    heuristics: list[Mapping[str, Any]] = field(default_factory=list)
    """For each ``triton.heuristics``: its functions, by the name of the parameter that they compute."""

    @property
    def name(self) -> str:
        """The name of the kernel for messages."""
        return str(getattr(self.function, "__name__", "kernel"))


def record_launch(
    caller: Caller, kernel: object, positional: Sequence[Any], keywords: Mapping[str, Any]
) -> tuple[KernelLaunch, list[Any]]:
    """Return the record of ``kernel.run(*positional, **keywords)`` and the arguments of the operator.

    Raises:
        LaunchRefused: the launch cannot be a node of a graph.
    """
    named = dict(keywords)
    grid = named.pop("grid", None)
    if named.pop("warmup", False):
        raise LaunchRefused("warmup of a Triton kernel")
    layers = _unwrap(kernel)
    names = list(layers.function.arg_names)
    if len(positional) > len(names) or len(layers.tuners) > 1:
        raise LaunchRefused(f"Triton kernel {layers.name}, with too many arguments or autotuners")
    passed = dict(zip(names, positional, strict=False)) | {n: v for n, v in named.items() if n in names}
    options = {name: caller.plain(v) for name, v in named.items() if name not in names}
    arguments, values = _arguments(caller, layers, passed)
    # The graph selects the configuration when it runs. Therefore the grid of each configuration is an input.
    configs = [config.all_kwargs() for t in layers.tuners for config in t.configs] or [{}]
    metas = [_grid_argument(caller, layers, passed, config) for config in configs]
    grids = [number for meta in metas for number in _grid_numbers(caller, grid, meta)]
    record = KernelLaunch(
        kernel,
        arguments,
        len(positional),
        tuple(options.items()),
        tuple({n: v for n, v in config.items() if n in names} for config in configs),
        _written_tensors(layers, arguments, metas),
    )
    return record, [*values, grids]


def _unwrap(kernel: object) -> Layers:
    """Return the function of a kernel with its wrappers."""
    from fxstack_capture.kernels import triton_side  # noqa: PLC0415 - Triton is the program's

    layers = Layers(kernel)
    while isinstance(layers.function, (triton_side.Autotuner, triton_side.Heuristics)):
        if isinstance(layers.function, triton_side.Autotuner):
            layers.tuners.append(layers.function)
        else:
            layers.heuristics.append(layers.function.values)
        layers.function = layers.function.fn
    return layers


# --- arguments -----------------------------------------------------------------------------------


def _arguments(
    caller: Caller, layers: Layers, passed: Mapping[str, Any]
) -> tuple[tuple[KernelArgument, ...], list[Any]]:
    """Return the records of the arguments ``passed``, and the values that are inputs of the node."""
    constants = constant_parameters(layers.function)
    arguments: list[KernelArgument] = []
    values: list[Any] = []
    for name, value in passed.items():
        constant = name in constants
        argument, parts = (None, []) if constant else _argument(caller, name, value)
        arguments.append(argument or KernelArgument(name, "constant", _constant(caller, name, value)))
        values += parts
    return tuple(arguments), values


def constant_parameters(function: Any) -> frozenset[str]:
    """Return the names of the parameters that are annotated as ``tl.constexpr``."""
    parameters = inspect.signature(function.fn).parameters
    return frozenset(n for n, p in parameters.items() if "constexpr" in str(p.annotation))


def _argument(caller: Caller, name: str, value: Any) -> tuple[KernelArgument | None, list[Any]]:
    """Return the record of an argument, and the inputs that the node gets for it.

    Return (None, []) if the value is no input. The value is then a constant of the kernel.
    """
    if isinstance(value, torch.Tensor):
        return KernelArgument(name, "tensor"), [value]
    if isinstance(value, torch.SymInt) or type(value) is int:
        return KernelArgument(name, "integer"), [value]
    if isinstance(value, torch.SymFloat) or type(value) is float:
        return KernelArgument(name, "number"), [value]
    if type(value).__name__ == "TensorDescriptor" and isinstance(value.base, torch.Tensor):
        # The operator gets the tensor as an argument. A write through the descriptor is then a write to the
        # tensor.
        block = tuple(caller.plain(size) for size in value.block_shape)
        make = descriptor_maker(block, getattr(value, "padding", "zero"))
        parts = [value.base, list(value.shape), list(value.strides)]
        return KernelArgument(name, "descriptor", make), parts
    return None, []


@cache
def descriptor_maker(block: tuple[int, ...], padding: str) -> Callable[..., Any]:
    """Return a function ``(tensor, shape, strides) -> TensorDescriptor`` for the given block sizes."""

    def make(tensor: torch.Tensor, shape: Any, strides: Any) -> Any:
        """Return the descriptor of ``tensor``."""
        from fxstack_capture.kernels import triton_side  # noqa: PLC0415

        return triton_side.TensorDescriptor(tensor, list(shape), list(strides), list(block), padding)

    vars(make)["block"] = block
    return make


def _constant(caller: Caller, name: str, value: object) -> Any:
    """Return the value of the constant parameter ``name``. The kernel is compiled for it.

    Raises LaunchRefused for a mutable value.
    """
    plain = caller.plain(value)
    if isinstance(plain, (torch.Tensor, list, dict, set)):
        kind = type(plain).__name__
        raise LaunchRefused(f"a Triton kernel whose constant {name} is a {kind}")
    return plain


# --- grids ---------------------------------------------------------------------------------------


def _grid_argument(
    caller: Caller, layers: Layers, passed: Mapping[str, Any], config: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the argument of a grid function, for one configuration of an autotuner.

    It is a dictionary by name. It contains passed values, defaults, results of heuristics, and the values in
    ``config``.
    """
    parameters = inspect.signature(layers.function.fn).parameters
    empty = inspect.Parameter.empty
    defaults = {n: p.default for n, p in parameters.items() if p.default is not empty}
    meta = {**passed, **{n: v for n, v in config.items() if n in parameters}}
    for values in layers.heuristics:
        for name, heuristic in values.items():
            meta[name] = caller.plain(caller.call(heuristic, dict(meta)))
    return {**defaults, **meta}


def _grid_numbers(caller: Caller, grid: object, meta: Mapping[str, Any]) -> list[Any]:
    """Return the three numbers of the grid. Missing numbers are 1.

    ``meta`` is the argument of the grid function. Raises LaunchRefused if the grid is not one, two or three
    integers.
    """
    result = caller.call(grid, dict(meta)) if callable(grid) else grid
    numbers = list(result) if isinstance(result, (tuple, list)) else [result]
    if not 1 <= len(numbers) <= 3:
        raise LaunchRefused(f"a Triton kernel with a grid of {len(numbers)} numbers")
    if not all(isinstance(n, (int, torch.SymInt)) for n in numbers):
        raise LaunchRefused("a Triton kernel whose grid is not made of integers")
    return [*numbers, *[1] * (3 - len(numbers))]


# --- writes --------------------------------------------------------------------------------------


def _written_tensors(
    layers: Layers, arguments: tuple[KernelArgument, ...], metas: Sequence[Mapping[str, Any]]
) -> frozenset[str]:
    """Return the names of the tensors that the kernel or its autotuner writes to, in any configuration.

    Later stages treat these arguments as mutated. ``metas`` has the constants of each configuration.
    """
    tensors = frozenset(a.name for a in arguments if a.kind in {"tensor", "descriptor"})
    names: set[str] = set()
    for tuner in layers.tuners:
        hooks = [tuner.user_defined_pre_hook, tuner.user_defined_post_hook]
        if any(hooks) or any(config.pre_hook for config in tuner.configs):
            return tensors  # the program's hooks may write to any tensor
        names.update(tuner.reset_to_zero)
    kinds = {argument.name: argument for argument in arguments}
    for meta in metas:
        if not names.issuperset(tensors):
            names.update(_names_written_by_kernel(layers, meta, kinds))
    return tensors.intersection(names)


def _names_written_by_kernel(
    layers: Layers, meta: Mapping[str, Any], kinds: Mapping[str, KernelArgument]
) -> frozenset[str]:
    """Return the names of the parameters that the kernel writes to if its constants are ``meta``.

    If Triton cannot compile the kernel, return all names in ``kinds``.
    """
    from fxstack_capture.kernels import triton_side  # noqa: PLC0415

    try:
        return triton_side.written_parameters(layers.function, meta, kinds)
    except Exception as error:  # the launch itself reports the error of Triton's compiler
        LOG.info("kernel %s: all tensors count as written (%r)", layers.name, error)
        return frozenset(kinds)
