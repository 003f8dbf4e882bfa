"""The structure of a graph module: two modules of equal structure compute the same from the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import fx

from fxstack_capture.torch_compat import FakeTensor

_IGNORED = frozenset(
    """stack_trace nn_module_stack source_fn_stack val example_value original_name fwd_source_fn_stack""".split()  # noqa: SIM905
)
"""Metadata that says where a node comes from, or that ``_kind`` reads."""


class _NoStructureError(Exception):
    """A module holds something whose equality is not known."""


def structure_of(module: fx.GraphModule) -> Hashable | None:
    """Return a hashable value that modules of equal structure share; None if equality cannot be proved.

    The value has targets, constants, wiring, and the metadata of all values: sizes, strides, dtypes, gradient flags.
    """
    try:
        structure = _structure(module)
        hash(structure)
    except (_NoStructureError, TypeError):
        return None
    return structure


def _structure(module: fx.GraphModule) -> Hashable:
    numbers: dict[fx.Node, int] = {}
    lines: list[Hashable] = []
    for node in module.graph.nodes:
        numbers[node] = len(numbers)
        target: Hashable = node.op if node.op in ("placeholder", "output") else node.target
        if node.op == "get_attr":
            target = _attribute(module, str(node.target))
        elif node.op == "call_module":
            raise _NoStructureError
        form = _form_of(numbers)
        meta = tuple((key, repr(value)) for key, value in node.meta.items() if key not in _IGNORED)
        arguments = () if node.op == "placeholder" else (form(node.args), form(node.kwargs))
        lines.append((node.op, target, arguments, _kind(node.meta.get("val")), meta))
    return tuple(lines)


def _attribute(module: fx.GraphModule, path: str) -> Hashable:
    """Return the structure of a nested graph. Other attributes have no known equality."""
    value = module.get_submodule(path) if "." in path else getattr(module, path)
    if not isinstance(value, fx.GraphModule):
        raise _NoStructureError
    return _structure(value)


def _form_of(numbers: dict[fx.Node, int]) -> Callable[[Any], Hashable]:
    """Return a function from arguments to hashable values, in which nodes are numbers."""

    def form(value: Any) -> Hashable:
        if isinstance(value, fx.Node):
            return ("node", numbers[value])
        if isinstance(value, (list, tuple)):
            return (type(value), *map(form, value))
        if isinstance(value, dict):
            return ("dict", *((key, form(item)) for key, item in value.items()))
        if isinstance(value, slice):
            return ("slice", form(value.start), form(value.stop), form(value.step))
        if isinstance(value, (int, float, complex, str, bytes, type(None), type(Ellipsis))):
            return (type(value), repr(value))
        if isinstance(value, torch.Tensor):
            raise _NoStructureError
        hash(value)
        return (type(value), value)

    return form


def _kind(value: object) -> Hashable:
    """Return the metadata of a value of a node."""
    if isinstance(value, torch.Tensor):
        if not isinstance(value, FakeTensor) or value.layout is not torch.strided:
            raise _NoStructureError
        layout = tuple(map(str, (*value.shape, *value.stride())))
        flags = (value.requires_grad, value.is_conj(), value.is_neg(), value.is_inference())
        return (value.dtype, str(value.device), layout, flags, type(value))
    if isinstance(value, (list, tuple)):
        return (type(value), *map(_kind, value))
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return (type(value), str(value.node.expr))
    return (type(value), repr(value))
