"""The same for plain functions and modules: they are traced at the first call with each new kind of arguments.

Nothing of the Python code is guarded but what is named in ``_key``: structure and constants of the arguments, the
tensors' metadata, which of them share memory, grad mode and autocast. Python control flow on anything else is
decided once.
"""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from fxstack_functionalize.aot import aot
from fxstack_interchange.modules import make_graph_module

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence


def aot_function(fn: Callable[..., Any], **aot_arguments: Any) -> Callable[..., Any]:
    """Return ``fn`` compiled ahead of time at its first call; ``aot_arguments`` are those of ``aot``.

    Tensors may be anywhere in the arguments' nest. Tensors that ``fn`` reaches in other ways (globals, closures) are
    constants, and must not require a gradient.
    """
    cache = _Cache(torch.nn.Module(), fn, aot_arguments)
    return cache.call


def aot_module(module: torch.nn.Module, **aot_arguments: Any) -> torch.nn.Module:
    """Return a module that shares ``module``'s parameters and buffers and runs it compiled ahead of time."""
    return _AotModule(module, aot_arguments)


class _AotModule(torch.nn.Module):
    def __init__(self, module: torch.nn.Module, aot_arguments: dict[str, Any]) -> None:
        super().__init__()
        self.module = module
        root = torch.nn.Module()
        root.module = module
        self._cache = _Cache(root, None, aot_arguments)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if any(map(is_lazy, self.module.parameters())) or any(map(is_lazy, self.module.buffers())):
            return self.module(*args, **kwargs)  # the call that gives lazy parameters their size
        return self._cache.call(*args, **kwargs)


class _Cache:
    """One compiled callable per kind of call."""

    def __init__(
        self, root: torch.nn.Module, fn: Callable[..., Any] | None, aot_arguments: dict[str, Any]
    ) -> None:
        self.root = root
        self.fn = fn
        self.aot_arguments = aot_arguments
        self.compiled: dict[Hashable, Callable[..., Any]] = {}
        self.lock = RLock()

    def call(self, *args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        key = self._key(leaves, spec, tensors)
        compiled = self.compiled.get(key)
        if compiled is None:
            with self.lock:
                compiled = self.compiled.get(key) or self._compile(leaves, spec, tensors)
                self.compiled[key] = compiled
        return compiled(*tensors)

    def _key(
        self, leaves: Sequence[Any], spec: pytree.TreeSpec, tensors: Sequence[torch.Tensor]
    ) -> Hashable:
        constants = tuple(
            _describe(leaf) if isinstance(leaf, torch.Tensor) else (type(leaf), leaf)
            for leaf in leaves
        )
        storages: dict[int, int] = {}
        owned = [*self.root.parameters(), *self.root.buffers()]
        sharing = tuple(
            storages.setdefault(tensor.untyped_storage()._cdata, len(storages))
            for tensor in (*tensors, *owned)
        )
        modes = tuple(module.training for module in self.root.modules())
        state = (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), _autocast_state())
        return constants, spec, sharing, tuple(map(_describe, owned)), modes, state

    def _compile(
        self, leaves: Sequence[Any], spec: pytree.TreeSpec, tensors: Sequence[torch.Tensor]
    ) -> Callable[..., Any]:
        constants = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        graph = Graph()
        inputs: list[Any] = list(constants)
        for number, place in enumerate(places):
            inputs[place] = graph.placeholder(f"input_{number}")
        args, kwargs = pytree.tree_unflatten(inputs, spec)
        if self.fn is None:
            graph.output(graph.call_module("module", tuple(args), kwargs))
        else:
            graph.output(graph.call_function(_named(self.fn), tuple(args), kwargs))
        return aot(make_graph_module(self.root, graph), tensors, **self.aot_arguments)


def _named(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Give ``fn`` a name that a graph can print: a lambda has none, and its source may be nowhere."""

    def program(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return program


def _describe(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Everything about a tensor that its compiled graph depends on."""
    strides = tensor.stride() if tensor.layout is torch.strided else None
    return (
        type(tensor),
        tensor.dtype,
        tensor.device,
        tensor.shape,
        strides,
        tensor.requires_grad,
        tensor.is_leaf,
        tensor.is_conj(),
        tensor.is_neg(),
        tensor.is_inference(),
    )


def _autocast_state() -> tuple[Any, ...]:
    if not torch._C._is_any_autocast_enabled():
        return ()
    return tuple(
        (device, torch.get_autocast_dtype(device))
        for device in ("cpu", "cuda")
        if torch.is_autocast_enabled(device)
    )
