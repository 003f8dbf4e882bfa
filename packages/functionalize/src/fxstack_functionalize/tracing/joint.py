"""The backward half of a joint graph: tangents to gradients, traced through autograd itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, cast

import torch
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

from fxstack_functionalize import torch_compat
from fxstack_functionalize.errors import FunctionalizeError, UnsupportedGraphError
from fxstack_functionalize.metadata.records import GraphInfo
from fxstack_functionalize.tracer.inputs import RestartTraceError
from fxstack_functionalize.tracing.finalize import FlatSlot, GradientSlot
from fxstack_functionalize.tracing.session import Session
from fxstack_functionalize.views.differentiable_bases import leaves_behind
from fxstack_functionalize.views.memory_layout import on_values
from fxstack_interchange.torch_facts.compiled_autograd import without_compiled_autograd


def add_backward(
    session: Session, info: GraphInfo, slots: Sequence[FlatSlot]
) -> tuple[tuple[FlatSlot, ...], tuple[GradientSlot, ...]]:
    """Trace the gradients of all inputs that require one. Each differentiable output gets a tangent."""
    outputs = [slots[position].value for position in info.differentiable]
    counts = _mutation_counts(session)
    tangents = [_tangent(session, number, output) for number, output in enumerate(outputs)]
    nodes = dict(zip(info.differentiable, [node for node, _ in tangents], strict=True))
    leaves = [session.inputs[index].leaf for index in info.grad_inputs]
    session.tracer.start_backward()
    shapes = session.captured.fake_mode.shape_env
    gradients = _gradients(outputs, leaves, [wrapped for _, wrapped in tangents], shapes)
    if counts != _mutation_counts(session):
        raise UnsupportedGraphError(
            "the backward changes an input of the forward in place",
            why="the compiled backward has no way to write to the forward's inputs",
            fix="compute the change in the forward, or clone the tensor before changing it",
        )
    with_tangents = tuple(replace(slot, tangent=nodes.get(position)) for position, slot in enumerate(slots))
    return with_tangents, tuple(
        GradientSlot(index, None if grad is None else session.node_of(session.value(grad)))
        for index, grad in zip(info.grad_inputs, gradients, strict=True)
    )


def _gradients(
    outputs: list[Any], leaves: list[Any], tangents: list[Any], shapes: ShapeEnv | None
) -> Sequence[Any]:
    """Run autograd on the traced outputs. Raise UnsupportedGraphError if an operator of the backward raises."""
    try:
        # Eager's backward runs outside the autocast region of its forward.
        with (
            without_compiled_autograd(),
            torch_compat.DisableAutocast(),
            _no_checks_for_nan(),
            treat_sizes_as_general(shapes),
        ):
            # The gradients of leaves that the graph makes are unused, but computing them may raise.
            leaf_ids = set(map(id, leaves))
            reached = leaves_behind(output.grad_fn for output in outputs)
            inner = [leaf for leaf in reached if id(leaf) not in leaf_ids]
            gradients: Sequence[Any] = torch.autograd.grad(
                outputs, [*leaves, *inner], tangents, allow_unused=True
            )
            return gradients[: len(leaves)]
    except (FunctionalizeError, RestartTraceError):
        raise
    except Exception as error:
        raise UnsupportedGraphError(
            f"the backward cannot be traced: {error}",
            why="eager may raise the same, but only once backward() is called",
            fix="run the graph in eager, or detach what needs no gradient",
        ) from error


def _tangent(session: Session, number: int, output: torch.Tensor) -> tuple[Node, torch.Tensor]:
    """Make the gradient of ``output`` an input: same size, dense in the output's dimension order.

    Return its placeholder, and the functional tensor from which autograd computes the gradients.
    """
    plain = session.value(output)
    with disable_proxy_modes_tracing(), on_values():
        inner = torch.empty_like(plain, memory_format=torch.preserve_format)
    return session.new_placeholder(f"tangents_{number + 1}", inner), session.engine.wrap(inner)


def _mutation_counts(session: Session) -> list[int]:
    """Return how often each traced tensor input was changed. Two results differ if the backward changes an input."""
    return [
        torch_compat.functionalize_mutation_counter(session.engine.core(traced.argument))
        for traced in session.inputs
        if traced.inner is not None
    ]


def _no_checks_for_nan() -> AbstractContextManager[Any]:
    """Disable the NaN checks of anomaly mode: they read data of gradients, and fake tensors have no data."""
    if not torch.is_anomaly_enabled():
        return nullcontext()
    return cast("AbstractContextManager[Any]", torch.autograd.set_detect_anomaly(mode=True, check_nan=False))


SIZE_INDEPENDENT = frozenset(
    {"AddmmBackward0", "BmmBackward0", "CumsumBackward0", "LogcumsumexpBackward0", "MmBackward0"}
)
"""The autograd nodes whose general case is correct for sizes 0 and 1."""


@contextmanager
def treat_sizes_as_general(shapes: ShapeEnv | None) -> Iterator[None]:
    """While ``SIZE_INDEPENDENT`` run, treat data-dependent sizes as neither 0 nor 1.

    These derivatives have shortcuts for sizes 0 and 1 (``cumsum`` returns a gradient of one element unchanged), which
    a trace cannot decide if the size depends on data.
    """
    if shapes is None:
        yield
        return
    evaluate: Any = shapes.evaluate_sym_node

    def answer(node: object, size_oblivious: bool = False, *rest: object, **named: object) -> Any:
        """Answer a question about a symbolic size.

        Assume the general case in backward nodes whose result does not depend on it.
        """
        try:
            return evaluate(node, size_oblivious, *rest, **named)
        except GuardOnDataDependentSymNode:
            running = torch_compat.current_autograd_node()
            if running is None or running.name().rpartition("::")[2] not in SIZE_INDEPENDENT:
                raise
            return evaluate(node, True, *rest, **named)

    shapes.evaluate_sym_node = answer
    try:
        yield
    finally:
        del shapes.evaluate_sym_node
