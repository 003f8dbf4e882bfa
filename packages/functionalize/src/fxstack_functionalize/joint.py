"""The backward half of a joint graph: tangents in, gradients out, traced through autograd itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

from fxstack_functionalize.errors import FunctionalizeError, UnsupportedGraphError
from fxstack_functionalize.finalize import GradientSlot
from fxstack_functionalize.rng import NeedsModesError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fxstack_functionalize.finalize import FlatSlot
    from fxstack_functionalize.metadata import GraphInfo
    from fxstack_functionalize.session import Session


def add_backward(
    session: Session, info: GraphInfo, slots: list[FlatSlot]
) -> tuple[GradientSlot, ...]:
    """Trace the gradients of all inputs that require one, given a tangent for every differentiable output."""
    outputs = [slots[position].value for position in info.differentiable]
    before = [torch._functionalize_mutation_counter(session.engine.core(t.argument)) for t in session.inputs if t.inner is not None]
    tangents = [
        _tangent(session, number, output) for number, output in enumerate(outputs)
    ]
    for position, node in zip(info.differentiable, [t.node for t in tangents], strict=True):
        slots[position].tangent = node
    leaves = [session.inputs[index].leaf for index in info.grad_inputs]
    session.tracer.enter_backward()
    gradients = _gradients(outputs, leaves, [t.wrapped for t in tangents])
    after = [torch._functionalize_mutation_counter(session.engine.core(t.argument)) for t in session.inputs if t.inner is not None]
    if before != after:
        raise UnsupportedGraphError(
            "the backward changes an input of the forward in place",
            why="the compiled backward has no way to write to the forward's inputs",
            fix="compute the change in the forward, or clone the tensor before changing it",
        )
    return tuple(
        GradientSlot(index, None if grad is None else session.node_of(session.value(grad)))
        for index, grad in zip(info.grad_inputs, gradients, strict=True)
    )


def _gradients(outputs: list[Any], leaves: list[Any], tangents: list[Any]) -> Sequence[Any]:
    try:
        with _backward_autocast_off():
            return torch.autograd.grad(outputs, leaves, tangents, allow_unused=True)
    except (FunctionalizeError, NeedsModesError):
        raise
    except Exception as error:
        raise UnsupportedGraphError(
            f"the backward cannot be traced: {error}",
            why="eager may raise the same, but only once backward() is called",
            fix="run the graph in eager, or detach what needs no gradient",
        ) from error


class _Tangent:
    def __init__(self, node: Any, wrapped: torch.Tensor) -> None:
        self.node = node
        self.wrapped = wrapped


def _tangent(session: Session, number: int, output: torch.Tensor) -> _Tangent:
    """Make the gradient of ``output`` an input: same size, and dense in the output's own dimension order."""
    plain = session.value(output)
    with disable_proxy_modes_tracing(), torch.no_grad(), session_paused(session):
        inner = torch.empty_like(plain, memory_format=torch.preserve_format)
    node = session.new_placeholder(f"tangents_{number + 1}", inner)
    return _Tangent(node, session.engine.wrap(inner))


class session_paused:
    """Functionalisation off, to make a plain tensor."""

    def __init__(self, session: Session) -> None:
        self.guard = torch._C._ExcludeDispatchKeyGuard(
            torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize)
        )

    def __enter__(self) -> None:
        self.guard.__enter__()

    def __exit__(self, *exc: object) -> None:
        self.guard.__exit__(*exc)


def _backward_autocast_off() -> Any:
    """Eager's backward runs outside the autocast region of its forward."""
    return torch._C._DisableAutocast()
