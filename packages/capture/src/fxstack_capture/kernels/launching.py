"""``kernel[grid](...)`` of a user's Triton kernel as one node (``fxstack_interchange.operators.kernels``).

The rule ``launch`` handles launches in traced code. ``traced_run`` replaces Triton's own ``run`` for launches
that Python makes while it computes with fakes. Such a launch comes from the ``forward`` of an
``autograd.Function`` in a later stage, or from the body of a ``triton_op``. For fakes, ``traced_run`` calls
the operator of the kernel. Without fakes, it launches the kernel.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import torch

from fxstack_capture import native, torch_compat
from fxstack_capture.breaks import graph_break
from fxstack_capture.kernels.records import LaunchRefused, record_launch
from fxstack_capture.torch_compat import FakeTensor, FunctionalTensor
from fxstack_capture.trace.rule_registry import Rule
from fxstack_capture.trace.state import Trace
from fxstack_interchange.operators.kernel_operators import launch_operator

_MODULE = "triton.runtime.jit"
_CLASSES = frozenset({"KernelInterface", "JITCallable"})
"""Base classes of Triton's functions."""


def is_kernel_class(cls: type) -> bool:
    """Whether instances of ``cls`` are Triton's functions: kernels, wrappers of kernels, or ``triton.cdiv``."""
    # Compare names, because Triton may not be installed.
    return any(c.__module__ == _MODULE and c.__name__ in _CLASSES for c in cls.__mro__)


def launch_rules() -> Mapping[int, Rule]:
    """Return the rules of Triton's callables, by the id of the callable.

    The result is empty if the program has not imported Triton. The tracer calls this whenever it looks for a
    rule, because the program may import Triton at any time.
    """
    return _rules() if _MODULE in sys.modules else MappingProxyType({})


@cache
def _rules() -> Mapping[int, Rule]:
    """Return the rules. Replace the ``run`` of each kernel class.

    Called once, after the program has imported Triton.
    """
    try:
        from fxstack_capture.kernels import triton_side  # noqa: PLC0415 - Triton is the program's
    except ImportError:  # this version of Triton is unsupported, so kernels break the graph
        return MappingProxyType({})
    for cls in triton_side.RUNNERS:
        cls.run = traced_run(cls.run)
    runs = (id(cls.run) for cls in triton_side.RUNNERS)
    return MappingProxyType({**dict.fromkeys(runs, launch), id(torch.library.wrap_triton): unwrap})


# --- launches in traced code ---------------------------------------------------------------------


@dataclass(frozen=True)
class _Traced:
    """The ``Caller`` of a launch in traced code. The trace calls grid functions and guards constants."""

    trace: Trace

    def call(self, fn: object, argument: dict[str, Any]) -> Any:
        """Trace a call of a grid function or a heuristic, and return its result."""
        return self.trace.calls.call(fn, (argument,), {})

    def plain(self, value: object) -> Any:
        """Return the current value of ``value`` as a constant, with a guard."""
        return self.trace.objects.original_of(self.trace.torch.specialize(value))


def launch(trace: Trace, _fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Record a launch as one node.

    This is the rule of the ``run`` of every kernel class; ``args[0]`` is the kernel. Raises GraphBreak if the
    launch cannot be a node.
    """
    try:
        record, values = record_launch(_Traced(trace), args[0], args[1:], kwargs)
    except LaunchRefused as reason:
        raise graph_break("unsupported-call", str(reason)) from None
    trace.torch.call(launch_operator(record), tuple(values), {})


def unwrap(_trace: Trace, _fn: object, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    """Return the kernel. This is the rule of ``torch.library.wrap_triton(kernel)``. Traced launches need no
    wrapper.
    """
    return args[0]


# --- launches in Python --------------------------------------------------------------------------


class _Plain:
    """The ``Caller`` of a launch in Python. Python calls grid functions."""

    def call(self, fn: Callable[..., Any], argument: dict[str, Any]) -> Any:
        """Call a grid function or a heuristic."""
        return fn(argument)

    def plain(self, value: object) -> Any:
        """Return the current value of ``value`` as a constant. A symbolic number is specialised."""
        convert = _PLAIN.get(type(value))
        return value if convert is None else convert(value)


_PLAIN: Mapping[type, Callable[[Any], Any]] = MappingProxyType(
    {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
)
"""Maps types of symbolic numbers to the conversions that specialise them."""


def traced_run(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper of ``run``, a method of a kernel class. The wrapper supports fakes.

    If no argument is a fake, the launch is Triton's own. No frame is compiled during it.
    """
    run_without_hook = native.Disabled(run) if native.AVAILABLE else run

    @functools.wraps(run)
    def wrapper(kernel: object, *args: object, **kwargs: object) -> Any:
        """Launch ``kernel``. If an argument is a fake, call the kernel's operator. Otherwise call Triton's
        ``run``.
        """
        if not torch_compat.len_torch_dispatch_stack() or not _has_fakes(args, kwargs):
            return run_without_hook(kernel, *args, **kwargs)
        try:
            record, values = record_launch(_Plain(), kernel, args, kwargs)
        except LaunchRefused as reason:
            raise NotImplementedError(f"{reason}, cannot be compiled") from None
        return launch_operator(record)(*values)

    return wrapper


def _has_fakes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an argument is a fake or a functional tensor. The tensor of a descriptor counts as an argument."""
    values = (*args, *kwargs.values())
    tensors = (getattr(value, "base", value) for value in values)
    return any(
        isinstance(t, (FakeTensor, FunctionalTensor))
        or (isinstance(t, torch.Tensor) and torch_compat.is_functional_tensor(t))
        for t in tensors
    )
