"""Plan how the caller makes each output that shares memory with an input or with another output.

The plan follows autograd's records: a tensor with ``_base`` is a view of this base, a tensor without is a
root. A root that aliases an input is a ``detach()`` or ``.data`` of the input. If outputs share memory that
no input owns, one root becomes a flat output of the graph. The caller makes the other outputs from this root.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import Any

import sympy
import torch

from fxstack_functionalize import torch_compat
from fxstack_functionalize.errors import UnsupportedGraphError
from fxstack_functionalize.metadata.replay import (
    AliasInfo,
    AliasSource,
    Detachment,
    Step,
    can_replay,
    is_detach,
    view_steps,
)
from fxstack_functionalize.tracer.engine import storage_key
from fxstack_functionalize.tracer.symbols import find_computed_symbols
from fxstack_functionalize.tracing.session import Session
from fxstack_functionalize.views.differentiable_bases import root_of

# Limits: two kinds of eager views have no _base when they leave the graph, so autograd does not know them as
# views: views whose memory set_ has replaced, and views of a tensor whose history autograd.grad has freed.
# The backward of a view that was made under no_grad runs the history of the viewed tensor, and frees this
# history.

Location = tuple[AliasSource, int]
"""Where the caller finds a tensor at run time: an argument, a flat output, or an earlier alias."""


class ViewKind(Enum):
    """Whether a view of the memory's owner has the gradient that the tensor has in eager."""

    VIEW = auto()
    """Yes: the tensor is a view, or it has no gradient."""
    CUSTOM = auto()
    """No: a custom ``autograd.Function`` made the view and may give it any gradient."""
    UNCLEAR = auto()
    """No: the tensor has a gradient of its own beside the gradient of its owner."""


class AliasPlan:
    """The aliases that the caller makes, in order.

    ``add_base`` appends to ``values`` each base that is no user output.
    """

    def __init__(self, session: Session, values: list[Any]) -> None:
        self.session = session
        self.values = values
        self.aliases: list[AliasInfo] = []
        self.locations: dict[int, Location] = {}
        self._owners: dict[int, torch.Tensor] = {}
        self._keep: list[torch.Tensor] = []
        self._numbers: dict[sympy.Symbol, int] = {}
        """Symbol -> position of its flat output, for data-dependent numbers that views need."""
        for index, traced in enumerate(session.inputs):
            if traced.inner is not None:
                self.locations[id(traced.argument)] = (AliasSource.INPUT, index)
                if traced.root is not None:
                    self.locations[id(traced.root)] = (AliasSource.INPUT, index)
                if traced.base is None:
                    self._owners[storage_key(traced.argument)] = traced.argument

    def has_owner(self, tensor: torch.Tensor) -> bool:
        """Return whether the memory of ``tensor`` belongs to an input or a flat output.

        The caller can then make ``tensor``.
        """
        return storage_key(tensor) in self._owners

    def is_placed(self, tensor: torch.Tensor) -> bool:
        """Return whether ``tensor`` itself is an input, a flat output or an alias that is planned already."""
        return id(tensor) in self.locations

    def add_base(self, base: torch.Tensor, position: int | None) -> None:
        """Make ``base`` the owner of its memory.

        ``position``: the flat output that ``base`` is; None adds a flat output for it.
        """
        if position is None:
            position = len(self.values)
            self.values.append(base)
        self.locations[id(base)] = (AliasSource.OUTPUT, position)
        self._owners[storage_key(base)] = base

    def place_tensor(self, tensor: torch.Tensor) -> Location:
        """Return where the caller finds ``tensor``: (kind, index).

        Plan an alias for ``tensor`` and for its base if necessary.
        """
        if id(tensor) not in self.locations:
            info = self._with_computed_numbers(self._plan_alias(tensor))
            self._keep.append(tensor)
            self.locations[id(tensor)] = (AliasSource.ALIAS, len(self.aliases))
            self.aliases.append(info)
        return self.locations[id(tensor)]

    def _with_computed_numbers(self, info: AliasInfo) -> AliasInfo:
        """Make the data-dependent numbers in view steps (``x[t]``) graph outputs, so that the caller knows
        the numbers.
        """
        computed = find_computed_symbols(self.session.captured, info.sizes)
        if computed is None:
            raise UnsupportedGraphError(
                "an output is a view whose size depends on data",
                why="the caller makes views again, and cannot know the size",
                fix="return a clone of the view",
            )
        for symbol, number in computed.items():
            if symbol not in self._numbers:
                self._numbers[symbol] = len(self.values)
                self.values.append(number)
        return replace(info, numbers=tuple((symbol, self._numbers[symbol]) for symbol in computed))

    def view_kind(self, tensor: torch.Tensor) -> ViewKind:
        """Return whether a view of the owner of its memory would have the gradient that ``tensor`` has."""
        if self.is_placed(tensor):
            return ViewKind.VIEW
        base = tensor._base
        if base is None:
            return ViewKind.UNCLEAR if tensor.requires_grad else ViewKind.VIEW
        truth_of_view = _kind_of_view(tensor, base, self.locations)
        return self.view_kind(base) if truth_of_view is ViewKind.VIEW else truth_of_view

    def _find_member(self, parent: torch.Tensor, chain: tuple[Step, ...]) -> torch.Tensor:
        """Return the input from which a view of the merged base ``parent`` was made; ``parent`` if no input fits."""
        for traced in self.session.inputs:
            if traced.root is parent:
                return traced.argument
            is_member = traced.base is not None and traced.base.argument is parent
            if is_member and chain[: len(traced.steps)] == traced.steps:
                return traced.argument
        return parent

    def _steps_to(self, tensor: torch.Tensor) -> tuple[Step, ...]:
        """Return the views that lead to ``tensor``; for an input, the views from before the graph ran."""
        source, index = self.locations[id(tensor)]
        if source is not AliasSource.INPUT:
            return view_steps(self.session.engine.core(tensor))
        if any(
            changed is tensor and (tensor.requires_grad or not step.changes_layout)
            for changed, step in self.session.engine.relayouts
        ):
            raise UnsupportedGraphError(
                "an output is a view of an input that has a gradient, and whose size, strides or history is changed in place",
                why="the view's gradient depends on whether it was made before or after the change",
                fix="use the out-of-place form of the operator (x = x.t() instead of x.t_())",
            )
        return self.session.inputs[index].steps

    def custom_view(self, tensor: torch.Tensor) -> AliasInfo:
        """Return the alias record of a view that a custom ``autograd.Function`` made."""
        owner = self._owners[storage_key(tensor)]
        source, index = self.locations[id(owner)]
        chain = view_steps(self.session.engine.core(tensor))
        steps = _steps_after(chain, self._steps_to(owner))
        return AliasInfo(source, index, steps)

    def _plan_alias(self, tensor: torch.Tensor) -> AliasInfo:
        """Return the record of the view, ``detach()`` or ``.data`` that makes ``tensor`` from its base or from the owner."""
        base = tensor._base
        parent = base if base is not None else self._owners[storage_key(tensor)]
        chain = view_steps(self.session.engine.core(tensor))
        parent = self._find_member(parent, chain)
        source, index = self.place_tensor(parent)
        steps = _steps_after(chain, self._steps_to(parent))
        if base is not None:
            # The base may require no gradient although an input that is a view of the base does.
            no_grad = is_no_grad_view(tensor) or (parent.requires_grad and not tensor.requires_grad)
            return AliasInfo(source, index, steps, Detachment.NO_GRAD if no_grad else Detachment.NONE)
        if chain and is_detach(chain[-1]):
            return AliasInfo(source, index, steps[:-1] if steps else (), Detachment.DETACH)
        return AliasInfo(source, index, steps, Detachment.DATA)


def is_no_grad_view(tensor: torch.Tensor) -> bool:
    """Whether ``tensor`` is a view that was made while grad mode was off."""
    if tensor._base is None:
        return False
    meta = torch_compat.get_creation_meta(tensor)
    return bool(meta == torch_compat.CreationMeta.NO_GRAD_MODE)


def choose_base(session: Session, tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Return the root from which all ``tensors`` can be made; None if no root can.

    The tensors are outputs on one storage.
    """
    roots = list({id(root_of(tensor)): root_of(tensor) for tensor in tensors}.values())
    chains = [view_steps(session.engine.core(root)) for root in roots]
    order = sorted(range(len(roots)), key=lambda i: (not roots[i].requires_grad, len(chains[i])))
    best = order[0]
    if all(chain[: len(chains[best])] == chains[best] for chain in chains):
        return roots[best]
    return None


def _steps_after(chain: tuple[Step, ...], prefix: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the views of ``chain`` that follow the views ``prefix``.

    Raise UnsupportedGraphError if the caller cannot repeat them.
    """
    if chain[: len(prefix)] != prefix or not can_replay(chain[len(prefix) :]):
        raise UnsupportedGraphError(
            "an output is a view whose base was itself given other memory",
            why="the chain of views that leads to it cannot be followed",
            fix="return a clone of the view",
        )
    return chain[len(prefix) :]


def _kind_of_view(tensor: torch.Tensor, base: torch.Tensor, planned: Collection[int]) -> ViewKind:
    """Return whether a view of ``base`` would have the gradient that ``tensor``, a view of ``base``, has.

    VIEW: ``tensor`` has no gradient, or its only autograd path leads to ``base`` or to a leaf in ``planned``
    (ids). CUSTOM: a custom function is on the path. UNCLEAR: the path forks or ends elsewhere, or the view
    was made under no_grad.
    """
    node, end_node = grad_fn_of(tensor), grad_fn_of(base)
    if not tensor.requires_grad or node is None:
        return ViewKind.VIEW
    while node is not None and node is not end_node and type(node).__name__ != "AccumulateGrad":
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            return ViewKind.CUSTOM
        following = [edge for edge, _ in node.next_functions if edge is not None]
        if len(following) != 1:
            return ViewKind.UNCLEAR
        node = following[0]
    if node is None or is_no_grad_view(tensor):
        return ViewKind.UNCLEAR
    leaf = getattr(node, "variable", base)  # another view of ``base`` may have become a leaf afterwards
    return ViewKind.VIEW if leaf is base or id(leaf) in planned else ViewKind.UNCLEAR


def grad_fn_of(tensor: torch.Tensor) -> torch.autograd.graph.Node | None:
    """Return ``tensor.grad_fn``.

    Autograd raises for a view that was made under no_grad and whose base was changed in place with gradients
    on.
    """
    try:
        return tensor.grad_fn
    except RuntimeError as error:
        raise UnsupportedGraphError(
            "an output is a view made under no_grad, and its base was changed in place afterwards",
            why=f"autograd gives such a view no gradient function: {error}",
            fix="make the view after the change, or return a clone",
        ) from error
