"""Replacements for arguments that torch does not accept in a traced call.

One kind is a tensor where torch requires a number: ends of slices, sizes, fill values (``x[: ends[0]]``,
``x.view(rows, -1)``). Torch reads the number of such a tensor once. If tracing knows the number
(``known_values``), it replaces the tensor. The other kind is a comparison of symbolic numbers where torch
requires a bool (``x.sum(0, keepdim=i > 3)``). A guard decides the comparison.
"""

from __future__ import annotations

from typing import Any

import torch

from fxstack_capture.breaks import READS_DATA, GraphBreak
from fxstack_capture.torch_side.numbers import known_values
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.state import Args, Kwargs

# Limits: an in-place operator between two rows of one tensor, at such indices (``y[t] = y[0]``), runs its
# graph in eager.

_CONTAINERS = (tuple, list, torch.Size)

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def replace_arguments(
    tracer: TracerProtocol, args: Args, kwargs: Kwargs, reason: GraphBreak
) -> Arguments | None:
    """Return new arguments for a call that broke the graph for ``reason``. None if no replacement applies."""
    arguments = _with_number(tracer, args, kwargs, reason)
    if arguments is None and reason.record.reason.id == "internal-error":
        return with_decisions(args, kwargs)
    return arguments


def _with_number(tracer: TracerProtocol, args: Args, kwargs: Kwargs, reason: GraphBreak) -> Arguments | None:
    """Return the arguments, with a number in place of the tensor whose number torch has read. None if it is
    unknown.
    """
    # If a tensor occurs twice, torch may need a number in one place and the tensor in the other.
    tensor, tracer.mode.number_read = tracer.mode.number_read, None
    if tensor is None or reason.record.reason.id not in READS_DATA:
        return None
    if _occurrences((args, kwargs), tensor) != 1:
        return None
    value = known_values.value_of(tracer, tensor)
    if value is None or value.numel() != 1:
        return None
    arguments: Arguments = _replace((args, kwargs), tensor, value.item())
    return arguments


def with_decisions(args: Args, kwargs: Kwargs) -> Arguments | None:
    """Return the arguments, with comparisons of symbolic numbers decided. None if there are none."""
    if not any(map(_is_open, (*args, *kwargs.values()))):
        return None
    named = {name: _decide(value) for name, value in kwargs.items()}
    return tuple(map(_decide, args)), named


def _is_open(value: Any) -> bool:
    """Return whether the value is a ``SymBool`` that a guard can decide. A ``SymBool`` is a comparison of
    symbolic numbers.
    """
    return type(value) is torch.SymBool and value.node.has_hint()


def _decide(value: object) -> Any:
    """Return the truth of a comparison that a guard can decide, and guard it. Any other value is returned
    unchanged.
    """
    return bool(value) if _is_open(value) else value


def _occurrences(value: object, tensor: torch.Tensor) -> int:
    """Return how often the tensor object occurs in an argument."""
    return (value is tensor) + sum(_occurrences(part, tensor) for part in _parts(value))


def _parts(value: Any) -> tuple[Any, ...]:
    """Return the items of a container, a slice or a dictionary."""
    if type(value) is slice:
        return value.start, value.stop, value.step
    if type(value) is dict:
        return tuple(value.values())
    return tuple(value) if type(value) in _CONTAINERS else ()


def _replace(value: Any, tensor: torch.Tensor, number: Any) -> Any:
    """Return the argument with ``number`` in place of ``tensor``."""
    if value is tensor:
        return number
    if type(value) is slice:
        return slice(*_replace(_parts(value), tensor, number))
    if type(value) is dict:
        return {name: _replace(part, tensor, number) for name, part in value.items()}
    if type(value) in _CONTAINERS:
        return type(value)([_replace(part, tensor, number) for part in value])
    return value
