"""The passes that put saved-tensor hooks into the graphs of a training step, before or after it is partitioned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from fxstack_functionalize.hooks.inline import inline_hooks
from fxstack_functionalize.hooks.joint import hooks_in_joint
from fxstack_functionalize.hooks.pair import HookPair
from fxstack_interchange import Partition, StageGraph
from fxstack_interchange.format.show import show
from fxstack_interchange.passes import NothingToDo, Pass


@dataclass(frozen=True, slots=True)
class Hooking:
    """A training step between two passes. ``backward``: names of the joint graph's nodes of the backward.

    ``early``: whether the partitioner sees the hooks.
    """

    joint: StageGraph
    backward: frozenset[str]
    pair: HookPair
    early: bool
    cut: Callable[[StageGraph], Partition]
    parts: Partition | None = None

    @property
    def partition(self) -> Partition:
        assert self.parts is not None
        return self.parts


def hook_joint(state: Hooking) -> Hooking | NothingToDo:
    """Put the hooks around each forward value that the backward reads, so that the partitioner sees them.

    >>> hooked("hook_joint", lambda x: x.exp())
    - # joint graph: 2 inputs, 2 operations, 2 outputs
    + # joint graph: 2 inputs, 4 operations, 2 outputs
    - mul = aten.mul.Tensor(tangents_1, exp)
    + div = aten.div.Tensor(exp, 2)
    + mul = aten.mul.Tensor(div, 2)
    ...
    + mul_1,  # gradient of x
    """
    if not state.early:
        return NothingToDo("the partitioner decides without the hooks")
    return replace(state, joint=hooks_in_joint(state.joint, state.backward, state.pair))


def cut_joint(state: Hooking) -> Hooking:
    """Cut the joint graph by the partitioner.

    >>> hooked("cut_joint", lambda x: x.sin())
    - # joint graph: 2 inputs, 5 operations, 2 outputs
    + # forward graph: 1 inputs, 4 operations, 2 outputs
    - tangents_1: f32[3],  # tangent sin
    + sin,  # user_output
    + cos,  # saved
    ...
    - sin,  # user_output
    """
    return replace(state, parts=state.cut(state.joint))


def hook_saved(state: Hooking) -> Hooking | NothingToDo:
    """Pack the saved tensors at the end of the forward, and unpack them at the start of the backward.

    >>> hooked("hook_saved", lambda x: x.sin(), early=False)
    - # forward graph: 1 inputs, 2 operations, 2 outputs
    + # forward graph: 1 inputs, 3 operations, 2 outputs
    + div = aten.div.Tensor(cos, 2)
    - cos,  # saved
    - # backward graph: 2 inputs, 1 operations, 1 outputs
    ...
    + mul_1,  # gradient of x
    """
    if state.early:
        return NothingToDo("the joint graph has the hooks")
    return replace(state, parts=inline_hooks(state.partition, state.pair))


def text(state: Hooking) -> str:
    """Return the joint graph as text, once it is cut both graphs."""
    if state.parts is None:
        return show(state.joint)
    return f"{show(state.parts.forward)}\n{show(state.parts.backward)}"


HOOKS: Final = (Pass("hook_joint", hook_joint), Pass("cut_joint", cut_joint), Pass("hook_saved", hook_saved))
