"""Changes of an input's metadata: its size, its strides, or whether it has a gradient.

The wrapper repeats these calls on the caller's tensor, so that version counters, ``grad_fn`` and errors are
eager's. ``requires_grad_()`` runs before the compiled graph, because the input may then need a backward.
``t_()``, ``detach_()`` and all other calls run after the graph. While tracing, ``t_()`` leaves only a view.
"""

from __future__ import annotations

import torch
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

from fxstack_functionalize import torch_compat
from fxstack_functionalize.aliasing.synthetic_bases import restart_with_root
from fxstack_functionalize.errors import UnsupportedGraphError
from fxstack_functionalize.metadata.records import Relayout
from fxstack_functionalize.metadata.replay import symbols_in
from fxstack_functionalize.tracer.inputs import CapturedInput
from fxstack_functionalize.tracer.symbols import is_evaluable
from fxstack_functionalize.tracing.session import Session, TracedInput
from fxstack_functionalize.views.inplace import RELAYOUTS
from fxstack_functionalize.views.memory_layout import on_values

# Limits: refused: inputs that require grad and whose values and size are changed in place (x.add_(1);
# x.t_()), views of an input that becomes a leaf or changes its size and requires grad, and views of resized
# tensors as outputs. requires_grad_ and detach_ on views, and on inputs with a history before and after, end
# the graph.


def relayouts_of(session: Session, spec: CapturedInput, traced: TracedInput) -> tuple[Relayout, ...]:
    """Return the calls by which the captured graph changed the input's metadata.

    Raises:
        UnsupportedGraphError: if the same calls on the caller's tensor would differ from eager.
    """
    argument = traced.argument
    relayouts = tuple(step for target, step in session.engine.relayouts if target is argument)
    _follow_history(spec, traced, relayouts)
    if traced.base is not None and argument.requires_grad and not traced.rooted:
        raise restart_with_root(
            session.captured, session.inputs.index(traced)
        ) or _gradient_through_base_error(spec)
    moves = tuple(step for step in relayouts if step.changes_layout)
    if (moves and (traced.leaf is argument or traced.rooted)) or not _matches_relayouts(
        session, spec, traced, moves
    ):
        raise UnsupportedGraphError(
            f"input {spec.name!r} has its size, strides or storage changed in place",
            why="the change cannot be made again on the caller's tensor when the compiled graph has run",
            fix="use the out-of-place form of the operator (x = x.t() instead of x.t_())",
        )
    if relayouts:
        _check_passed_once(session, spec)
    return relayouts


def _matches_relayouts(
    session: Session, spec: CapturedInput, traced: TracedInput, relayouts: tuple[Relayout, ...]
) -> bool:
    """Whether the input differs from its state before the graph only by ``relayouts``."""
    argument = traced.argument
    core = session.engine.core(argument)
    if torch_compat.functionalize_was_storage_changed(core):
        return False
    if not relayouts:
        changed = torch_compat.functionalize_has_metadata_mutation(core)
        return not changed and _same_size(argument, spec.fake)
    numbers = symbols_in([(step.arguments, step.keywords) for step in relayouts])
    if any(relayout.method not in RELAYOUTS for relayout in relayouts) or not is_evaluable(
        session.captured, numbers
    ):
        return False
    example = _relaid_example(spec.fake, relayouts)
    if not _same_size(argument, example):
        return False
    if traced.base is None and torch_compat.functionalize_has_data_mutation(core):
        return True  # the layout of new values is irrelevant: they are traced again as views of a base
    strides_and_offset = (*argument.stride(), argument.storage_offset())
    return strides_and_offset == (*example.stride(), example.storage_offset())


def _relaid_example(fake: torch.Tensor, relayouts: tuple[Relayout, ...]) -> torch.Tensor:
    """Return a tensor that has the metadata of ``fake`` after ``relayouts``."""
    with disable_proxy_modes_tracing(), on_values():
        example = fake.data  # with a version counter of its own
        for relayout in relayouts:
            getattr(example, relayout.method)(*relayout.arguments, **dict(relayout.keywords))
    return example


def _same_size(argument: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether sizes agree. Strides may differ, because a write-back can change the layout of a value."""
    if len(argument.shape) != expected.dim():
        return False
    return all(
        type(size) is not int or type(expected_size) is not int or size == expected_size
        for size, expected_size in zip(argument.shape, expected.shape, strict=True)
    )


def _check_passed_once(session: Session, spec: CapturedInput) -> None:
    """Refuse an input that is passed twice: the graph would know it as two tensors of different metadata."""
    if sum(input_spec.fake is spec.fake for input_spec in session.captured.inputs) > 1:
        raise UnsupportedGraphError(
            f"input {spec.name!r} has its size or strides changed in place and is another input, too",
            why="the change shows in both, and the graph knows them as two tensors",
            fix="pass the tensor once",
        )


def _follow_history(spec: CapturedInput, traced: TracedInput, steps: tuple[Relayout, ...]) -> None:
    """Set ``traced.leaf`` for an input that has become a leaf.

    Raises:
        UnsupportedGraphError: if the input changes its history in the middle of the graph.
    """
    argument = traced.argument
    methods = {step.method for step in steps}
    if argument.requires_grad and traced.leaf is None and argument.grad_fn is None:
        clear = methods == {"requires_grad_"} and traced.base is None
        traced.leaf = argument
    elif traced.leaf is not None and not argument.requires_grad:
        clear = methods == {"detach_"} and traced.leaf is not argument
    else:
        # Nothing changed, or the change differs from eager's: a view cannot be detached in place.
        clear = all(step.changes_layout for step in steps) or (
            argument.requires_grad is (traced.leaf is not None) and "detach_" not in methods
        )
    if not clear:
        raise UnsupportedGraphError(
            f"requires_grad_() or detach_() was called on input {spec.name!r}",
            why="its gradient is another one before and after the call, or its values or size change, too",
            fix="call it outside the compiled function",
        )


def _gradient_through_base_error(spec: CapturedInput) -> UnsupportedGraphError:
    """Return the error about an input that shares memory with another input and gets a value with a gradient."""
    return UnsupportedGraphError(
        f"input {spec.name!r} shares memory with another input, and is changed by a value that has a gradient",
        why="the gradient cannot follow the shared memory",
        fix="pass tensors that do not overlap, or clone one of them",
    )
