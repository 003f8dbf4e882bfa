"""``aot_function`` and ``aot_module``: ``aot`` for plain functions and modules, without graph capture.

The first call for each key traces and compiles. The key (``_Cache._key``) has the structure and constants of
the arguments, the tensors' metadata and memory sharing, training flags, grad mode and autocast. Nothing else
is guarded: Python control flow on any other state is decided when the call is traced.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from inspect import signature
from operator import getitem
from threading import RLock
from typing import Any

import torch
from torch.fx import Graph
from torch.nn.parameter import is_lazy

from fxstack_functionalize.aot import Compiler, aot
from fxstack_functionalize.torch_compat import pytree
from fxstack_functionalize.torch_state import autocast_dtypes
from fxstack_interchange.modules import make_graph_module

# Limits: in-place changes of expanded (overlapping) tensors inside of a module are not seen.


def aot_function(
    fn: Callable[..., Any],
    fw_compiler: Compiler,
    bw_compiler: Compiler | None = None,
    **aot_arguments: object,
) -> Callable[..., Any]:
    """Return a callable that compiles ``fn`` at the first call. ``aot_arguments`` are arguments of ``aot``.

    Tensors may be anywhere in the nest of arguments; all other arguments must be hashable. Tensors that
    ``fn`` reaches through globals or closures are constants, and must not require a gradient.

    Raises:
        TypeError: if ``fn`` or a compiler is not callable, or ``aot`` has no such argument. A call raises
            TypeError for an argument that is neither a tensor nor hashable.
    """
    _check_callable("fn", fn)
    arguments = _check_arguments(fw_compiler, bw_compiler, aot_arguments)
    return _Cache(torch.nn.Module(), fn, arguments).call


def aot_module(
    module: torch.nn.Module,
    fw_compiler: Compiler,
    bw_compiler: Compiler | None = None,
    **aot_arguments: object,
) -> torch.nn.Module:
    """Return a module that shares the parameters and buffers of ``module`` and runs ``module`` compiled.

    Raises:
        TypeError: as ``aot_function``, and if ``module`` is not a ``torch.nn.Module``.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(
            f"aot_module takes a torch.nn.Module, not {type(module).__name__}.\n"
            "  fix: use aot_function for a function"
        )
    return _AotModule(module, _check_arguments(fw_compiler, bw_compiler, aot_arguments))


def _check_arguments(
    fw_compiler: Compiler, bw_compiler: Compiler | None, aot_arguments: dict[str, Any]
) -> dict[str, Any]:
    """Return the arguments for ``aot`` by name. Check them now, because ``aot`` is called only at the first call."""
    arguments = {"fw_compiler": fw_compiler, "bw_compiler": bw_compiler, **aot_arguments}
    signature(aot).bind(None, (), **arguments)
    for name, value in arguments.items():
        is_required = name in ("fw_compiler", "partitioner")
        if is_required or (value is not None and name.endswith("_compiler")):
            _check_callable(name, value)
    return arguments


def _check_callable(name: str, value: object) -> None:
    if not callable(value):
        raise TypeError(f"{name} must be callable, not {type(value).__name__}")


class _AotModule(torch.nn.Module):
    """Runs ``module`` compiled, and holds it as a submodule, so that its parameters and state are this module's."""

    def __init__(self, module: torch.nn.Module, aot_arguments: dict[str, Any]) -> None:
        super().__init__()
        self.module = module
        root = torch.nn.Module()
        root.module = module
        self._cache = _Cache(root, None, aot_arguments)

    def forward(self, *args: object, **kwargs: object) -> Any:
        """Run the compiled graph of the wrapped module. Run the module in eager while it has lazy parameters."""
        if any(map(is_lazy, self.module.parameters())) or any(map(is_lazy, self.module.buffers())):
            return self.module(*args, **kwargs)  # this call gives lazy parameters their size
        return self._cache.call(*args, **kwargs)


class _Cache:
    """One compiled callable for each key of a call (``_key``)."""

    def __init__(
        self, root: torch.nn.Module, fn: Callable[..., Any] | None, aot_arguments: dict[str, Any]
    ) -> None:
        self.root = root
        self.fn = fn
        self.aot_arguments = aot_arguments
        self.compiled: dict[Hashable, Callable[..., Any]] = {}
        self.lock = RLock()

    def call(self, *args: object, **kwargs: object) -> Any:
        """Run the compiled callable of this call's key. The first call of a key compiles, once for all threads."""
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
        """Return everything about a call on which the compiled graph depends."""
        constants = tuple(
            _describe_tensor(leaf) if isinstance(leaf, torch.Tensor) else _key_of_constant(leaf)
            for leaf in leaves
        )
        storages: dict[int, int] = {}
        owned = [*self.root.parameters(), *self.root.buffers()]
        sharing = tuple(
            storages.setdefault(_memory_of(tensor), len(storages)) for tensor in (*tensors, *owned)
        )
        modes = tuple(module.training for module in self.root.modules())
        state = (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), tuple(autocast_dtypes().items()))
        return constants, spec, sharing, tuple(map(_describe_tensor, owned)), modes, state

    def _compile(
        self, leaves: Sequence[Any], spec: pytree.TreeSpec, tensors: Sequence[torch.Tensor]
    ) -> Callable[..., Any]:
        """Make a graph of one node that calls the program with the tensors of this call, and compile the graph."""
        graph = Graph()
        inputs = [graph.placeholder(f"input_{number}") for number in range(len(tensors))]
        nested = _make_nest_function(leaves, spec)
        if self.fn is None:
            nest_node = graph.call_function(nested, tuple(inputs))
            nest = pytree.tree_unflatten(leaves, spec)
            args, kwargs = (
                {key: graph.call_function(getitem, (part_node, key)) for key in keys}
                for part_node, keys in (
                    (graph.call_function(getitem, (nest_node, 0)), range(len(nest[0]))),
                    (graph.call_function(getitem, (nest_node, 1)), nest[1]),
                )
            )
            graph.output(graph.call_module("module", tuple(args.values()), kwargs))
        else:
            fn = self.fn

            def program(*tensors: object) -> Any:  # no lambda: a graph cannot print the name ``<lambda>``
                args, kwargs = nested(*tensors)
                return fn(*args, **kwargs)

            graph.output(graph.call_function(program, tuple(inputs)))
        return aot(make_graph_module(self.root, graph), tensors, **self.aot_arguments)


def _make_nest_function(leaves: Sequence[Any], spec: pytree.TreeSpec) -> Callable[..., Any]:
    """Return a function from the tensors among ``leaves`` to the call's arguments. All other leaves are constants."""
    constants = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    positions = [position for position, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def nested(*tensors: object) -> Any:
        """Put the tensors of a call among the constants, and rebuild the nested arguments."""
        filled = list(constants)
        for position, tensor in zip(positions, tensors, strict=True):
            filled[position] = tensor
        return pytree.tree_unflatten(filled, spec)

    return nested


def _key_of_constant(leaf: object) -> Hashable:
    """Return the key of an argument that is not a tensor.

    The key of a float is its ``repr``, because -0.0 equals 0.0 and nan does not equal nan.

    Raises:
        TypeError: if the argument is not hashable.
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
    """Return the identity of the tensor's storage; of the tensor itself if it has none (sparse layouts)."""
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else id(tensor)


def _describe_tensor(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return all metadata of a tensor on which a compiled graph depends."""
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
