"""Lower launches of users' Triton kernels; copy a written argument only where its old value is still needed.

A functional overload (``fxstack_interchange.operators.kernel_operators``) is lowered to a launch in place.
The launch writes to an argument directly if no later node reads the old value: fresh memory, the result of
another launch, or an input that receives the new value anyway. Otherwise the launch writes to a copy. The
copy is a kernel of this package and fuses with the producer of the value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node as FxNode

from fxstack_inductor.ir.nodes import Node, Pointwise, Read, resolve
from fxstack_interchange.operators.kernel_operators import FunctionalLaunch, functional_launch_of

# Limits: under TRITON_INTERPRET=1 every tensor counts as written. Launches go through Triton's own dispatch,
# except in recorded CUDA graphs; a saved graph refers to the kernels of the process that made it.

RENAMES = frozenset({torch.ops.aten.detach.default, torch.ops.aten.alias.default})
"""Operators that return their argument's memory under another name."""
COPY = torch.ops.aten.copy_.default


def launch_arguments(
    node: FxNode, launch: FunctionalLaunch, value_of: Callable[[FxNode], Node]
) -> tuple[tuple[Any, ...], list[Pointwise]] | None:
    """Return the arguments (FX nodes or copies) for a launch in place, and the copies to compute first.

    Return None where a copy would have another layout: the user's kernel relies on the strides that the
    program passed.
    """
    arguments: list[Any] = list(node.args)
    copies: list[Pointwise] = []
    done: set[int] = set()
    for position in launch.places:
        group = next((g for g in launch.same if position in g), (position,))
        source = arguments[position]
        if position in done or _may_overwrite(source, node, launch, group):
            continue
        if not torch.ops.aten.is_non_overlapping_and_dense(source.meta["val"]):
            return None
        copy = _copy(value_of(source), f"{node.name}_in{position}", node)
        copies.append(copy)
        for same in group:
            arguments[same] = copy
        done.update(group)
    return tuple(arguments), copies


def _copy(value: Node, name: str, node: FxNode) -> Pointwise:
    """Return a copy of ``value`` that the launch may write."""
    base, coords = resolve(value, value.index)
    return Pointwise(name=name, layout=value.layout, origin=node.name, body=Read(base, coords))


def _may_overwrite(source: FxNode, node: FxNode, launch: FunctionalLaunch, group: tuple[int, ...]) -> bool:
    """Whether only ``node`` uses the memory of ``source`` from here on, at argument positions ``group``."""
    if any(arg is source for k, arg in enumerate(node.args) if k not in group):
        return False
    if source.op == "placeholder":
        return _takes_result(source, node, launch, group)
    reader = node
    while source.op == "call_function" and set(source.users) == {reader}:
        if source.target not in RENAMES:
            return _owns_memory(source)
        reader, source = source, source.args[0]
    return False


def _owns_memory(source: FxNode) -> bool:
    """Whether the result owns its memory: it is no view, and no result of an operator whose results read each other."""
    launch = functional_launch_of(source.target)
    if launch is not None:
        return len(launch.places) == 1
    schema = getattr(source.target, "_schema", None)
    return (
        schema is not None
        and schema.name.startswith("aten::")
        and isinstance(source.meta.get("val"), torch.Tensor)
        and str(source.target) in FRESH
    )


FRESH = frozenset(
    f"aten.{name}"
    for name in (
        *("empty.memory_format", "empty_strided.default", "empty_permuted.default"),
        *("empty_like.default", "new_empty.default", "new_empty_strided.default"),
        *("full.default", "full_like.default", "zeros_like.default", "ones_like.default"),
        *("zeros.default", "ones.default", "clone.default"),
    )
)
"""Operators that allocate memory for their results."""


def _takes_result(source: FxNode, node: FxNode, launch: FunctionalLaunch, group: tuple[int, ...]) -> bool:
    """Whether an input has no other reader and receives the launch's result through ``copy_``."""
    others = [user for user in source.users if user is not node]
    if len(others) != 1 or others[0].target is not COPY or others[0].args[0] is not source:
        return False
    copied = others[0].args[1]
    if len(launch.places) == 1:
        return copied is node
    assert isinstance(copied, FxNode)
    return (
        len(copied.args) == 2
        and copied.args[0] is node
        and isinstance(copied.args[1], int)
        and launch.places[copied.args[1]] in group
    )
