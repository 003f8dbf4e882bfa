"""The same for plain functions and modules: they are traced at the first call with each new kind of arguments.

Nothing of the Python code is guarded but what is named in ``_key``: structure and constants of the arguments, the
tensors' metadata, which of them share memory, grad mode and autocast. Python control flow on anything else is
decided once.
"""

from __future__ import annotations

from inspect import signature
from operator import getitem
from threading import RLock
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph
from torch.nn.parameter import is_lazy

from fxstack_functionalize import torch_compat
from fxstack_functionalize.aot import aot
from fxstack_functionalize.torch_compat import pytree
from fxstack_interchange.modules import make_graph_module

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from fxstack_functionalize.aot import Compiler


# Limits: in-place changes of expanded (overlapping) tensors inside of a module are not seen.


def aot_function(
    fn: Callable[..., Any],
    fw_compiler: Compiler,
    bw_compiler: Compiler | None = None,
    **aot_arguments: object,
) -> Callable[..., Any]:
    """Return ``fn`` compiled ahead of time at its first call; ``aot_arguments`` are those of ``aot``.

    Tensors may be anywhere in the arguments' nest, other arguments must be hashable. Tensors that ``fn`` reaches in other
    ways (globals, closures) are constants, and must not require a gradient.

    Raises:
        TypeError: if ``fn`` or a compiler cannot be called, or ``aot`` has no such argument; at a call, for an argument
            that is neither a tensor nor hashable.
    """
    _check_callable("fn", fn)
    arguments = _checked(fw_compiler, bw_compiler, aot_arguments)
    return _Cache(torch.nn.Module(), fn, arguments).call


def aot_module(
    module: torch.nn.Module,
    fw_compiler: Compiler,
    bw_compiler: Compiler | None = None,
    **aot_arguments: object,
) -> torch.nn.Module:
    """Return a module that shares ``module``'s parameters and buffers and runs it compiled ahead of time.

    Raises:
        TypeError: as ``aot_function``, and if ``module`` is no module.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(
            f"aot_module takes a torch.nn.Module, not {type(module).__name__}.\n"
            "  fix: use aot_function for a function"
        )
    return _AotModule(module, _checked(fw_compiler, bw_compiler, aot_arguments))


def _checked(fw_compiler: Compiler, bw_compiler: Compiler | None, others: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments for ``aot``, which is called much later than the mistake was made."""
    arguments = {"fw_compiler": fw_compiler, "bw_compiler": bw_compiler, **others}
    signature(aot).bind(None, (), **arguments)
    for name, value in arguments.items():
        wanted = name in ("fw_compiler", "partitioner")
        if wanted or (value is not None and name.endswith("_compiler")):
            _check_callable(name, value)
    return arguments


def _check_callable(name: str, value: object) -> None:
    if not callable(value):
        raise TypeError(f"{name} must be callable, not {type(value).__name__}")


class _AotModule(torch.nn.Module):
    def __init__(self, module: torch.nn.Module, aot_arguments: dict[str, Any]) -> None:
        super().__init__()
        self.module = module
        root = torch.nn.Module()
        root.module = module
        self._cache = _Cache(root, None, aot_arguments)

    def forward(self, *args: object, **kwargs: object) -> Any:
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

    def call(self, *args: object, **kwargs: object) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        key = self._key(leaves, spec, tensors)
        compiled = self.compiled.get(key)
        if compiled is None:
            with self.lock:
                compiled = self.compiled.get(key) or self._compile(leaves, spec, tensors)
                self.compiled[key] = compiled
        return compiled(*tensors)

    def _key(self, leaves: Sequence[Any], spec: pytree.TreeSpec, tensors: Sequence[torch.Tensor]) -> Hashable:
        constants = tuple(
            _describe(leaf) if isinstance(leaf, torch.Tensor) else _constant(leaf) for leaf in leaves
        )
        storages: dict[int, int] = {}
        owned = [*self.root.parameters(), *self.root.buffers()]
        sharing = tuple(
            storages.setdefault(_memory_of(tensor), len(storages)) for tensor in (*tensors, *owned)
        )
        modes = tuple(module.training for module in self.root.modules())
        state = (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), _autocast_state())
        return constants, spec, sharing, tuple(map(_describe, owned)), modes, state

    def _compile(
        self, leaves: Sequence[Any], spec: pytree.TreeSpec, tensors: Sequence[torch.Tensor]
    ) -> Callable[..., Any]:
        graph = Graph()
        inputs = [graph.placeholder(f"input_{number}") for number in range(len(tensors))]
        nested = _nesting(leaves, spec)
        if self.fn is None:
            both = graph.call_function(nested, tuple(inputs))
            given = pytree.tree_unflatten(leaves, spec)
            args, kwargs = (
                {key: graph.call_function(getitem, (part, key)) for key in keys}
                for part, keys in (
                    (graph.call_function(getitem, (both, 0)), range(len(given[0]))),
                    (graph.call_function(getitem, (both, 1)), given[1]),
                )
            )
            graph.output(graph.call_module("module", tuple(args.values()), kwargs))
        else:
            graph.output(graph.call_function(_on_nest(self.fn, nested), tuple(inputs)))
        return aot(make_graph_module(self.root, graph), tensors, **self.aot_arguments)


def _nesting(leaves: Sequence[Any], spec: pytree.TreeSpec) -> Callable[..., Any]:
    """Return a function of the tensors among ``leaves`` that gives the call's arguments, with what is no tensor as it is now."""
    constants = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def nested(*tensors: object) -> Any:
        filled = list(constants)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        return pytree.tree_unflatten(filled, spec)

    return nested


def _on_nest(fn: Callable[..., Any], nested: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``fn`` as a function of tensors, with a name that a graph can print: a lambda has none."""

    def program(*tensors: object) -> Any:
        args, kwargs = nested(*tensors)
        return fn(*args, **kwargs)

    return program


def _constant(leaf: object) -> Hashable:
    """Identify an argument that is no tensor; floats by all of their bits, as -0.0 and 0.0 are equal, and nan is not.

    Raises:
        TypeError: if it cannot be hashed.
    """
    try:
        hash(leaf)
    except TypeError as error:
        raise TypeError(
            f"an argument of type {type(leaf).__name__} is neither a tensor nor hashable: "
            "it is part of what is compiled, and later calls are compared with it.\n"
            "  fix: pass a tensor, a tuple or a frozenset, or register the type with torch.utils._pytree"
        ) from error
    return type(leaf), repr(leaf) if isinstance(leaf, (float, complex)) else leaf


def _memory_of(tensor: torch.Tensor) -> int:
    """Identify the storage; of a tensor that has none, the tensor."""
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else id(tensor)


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
    if not torch_compat.is_any_autocast_enabled():
        return ()
    return tuple(
        (device, torch.get_autocast_dtype(device))
        for device in ("cpu", "cuda")
        if torch.is_autocast_enabled(device)
    )
