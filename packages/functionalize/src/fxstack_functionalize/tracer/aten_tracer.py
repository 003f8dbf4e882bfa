"""The FX tracer that records ATen operators and their origins.

While a captured node runs, it is the origin: every operator that is recorded inherits the node's metadata. In
the backward the running autograd node gives the origin: autograd numbers its nodes in sequence, and the
tracer records the sequence numbers from each captured node's forward.
"""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch.fx import Graph, Node, Proxy
from torch.fx.experimental.proxy_tensor import PythonKeyTracer, track_tensor_tree

from fxstack_functionalize import torch_compat
from fxstack_functionalize.errors import UnsupportedGraphError
from fxstack_functionalize.torch_compat import FakeTensor, HigherOrderOperator, OpOverload
from fxstack_interchange.format.metadata import recompute_tag

INHERITED = ("stack_trace", "nn_module_stack", "source_fn_stack", "original_name", "recompute", "custom")
"""Metadata keys that an ATen node inherits from its captured node."""

KEPT_METADATA = frozenset({*INHERITED, "val", "unbacked_bindings"})
"""All metadata keys that leave this package."""


class TensorMap:
    """Maps tensors to proxies by identity. Keeps the (fake) tensors alive as long as the trace.

    torch uses a dictionary of weak references; a look-up by identity is several times faster.
    """

    def __init__(self) -> None:
        self._entries: dict[int, tuple[torch.Tensor, Any]] = {}

    def __getitem__(self, tensor: torch.Tensor) -> Any:
        if id(tensor) not in self._entries:
            raise KeyError(tensor)
        return self.get(tensor)

    def __setitem__(self, tensor: torch.Tensor, proxy: object) -> None:
        self._entries[id(tensor)] = (tensor, proxy)

    def set_later(self, tensor: torch.Tensor, make: partial[Any]) -> None:
        """Set a function that makes the proxy of ``tensor`` at the first ``get`` of ``tensor``.

        For views that are recorded only if used.
        """
        self._entries[id(tensor)] = (tensor, make)

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self._entries

    def get(self, tensor: torch.Tensor, default: object = None) -> Any:
        """Return the proxy of ``tensor``. A proxy that was set by ``set_later`` is made now."""
        entry = self._entries.get(id(tensor))
        if entry is None:
            return default
        proxy = entry[1]
        if type(proxy) is partial:
            proxy = proxy()
            self[tensor] = proxy
        return proxy

    def items(self) -> Iterator[tuple[torch.Tensor, Any]]:
        return ((t, proxy) for t, proxy in self._entries.values() if type(proxy) is not partial)


def add_call(
    graph: Graph, target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], name: str
) -> Node:
    """Add the call of a function to ``graph``. Arguments are nodes and constants.

    ``Graph.create_node`` searches the arguments for symbolic numbers, which takes as long as the rest of it.
    """
    node = graph.create_node("call_function", target, name=name)
    node._update_args_kwargs(args, kwargs)
    return node


def track(tracer: AtenTracer, value: object, node: Node) -> None:
    """Let ``node`` be the node of ``value``, a plain tensor or a number, and of the symbols in its size."""
    proxy = Proxy(node, tracer)
    if isinstance(value, torch.Tensor) and not value._has_symbolic_sizes_strides:
        # Several times faster than torch's function, which computes metadata that nobody reads.
        node.meta["val"] = value
        tracer.tensor_tracker[value] = torch_compat.ProxyTensor(proxy, None)
    else:
        track_tensor_tree(value, proxy, constant=None, tracer=tracer)


class AtenTracer(PythonKeyTracer):
    """Records ATen operators into one graph. Each node inherits the metadata of the captured node that runs."""

    def __init__(self, whole_attention: tuple[str, ...] = (), *, equal_draws: bool = False) -> None:
        super().__init__()
        self.whole_attention = whole_attention
        self.equal_draws = equal_draws
        """See ``Captured.equal_draws``."""
        self.graph = Graph(tracer_cls=PythonKeyTracer)
        self.root = torch.nn.Module()
        self.root._create_node_hooks = []  # ``Graph`` reads it for each new node
        self.graph.owning_module = self.root  # where ``effects.nested_graphs`` finds the nested graphs
        self.tensor_attrs: dict[Any, str] = {}
        self.record_stack_traces = False
        self.tensor_tracker = TensorMap()
        self.kinds: dict[int, Hashable] = {}
        """The metadata of fake tensors by identity, where ``repeated_calls`` knows it. The tracker keeps them alive."""
        self._origin: dict[str, Any] = {}
        self.backward_nodes: list[Node] = []
        self.in_backward = False
        self.casting: Mapping[str, torch.dtype] = {}
        """Device type -> autocast dtype, as the present captured node runs."""
        self._starts: list[int] = []
        self._origins: list[dict[str, Any]] = []

    def start_node(self, meta: Mapping[str, Any], name: str) -> None:
        """Attribute the next operators to the captured node ``name`` with metadata ``meta``."""
        self._origin = {key: meta[key] for key in INHERITED if key in meta}
        self._origin.setdefault("original_name", name)
        tag = self._origin.get("recompute")
        if tag is not None:  # graphs of torch's compiler have members of CheckpointPolicy
            self._origin["recompute"] = recompute_tag(tag)
        self._starts.append(torch_compat.get_sequence_nr())
        self._origins.append(self._origin)

    def tag(self, name: str) -> None:
        """Tag the next operators for partitioners, unless the captured node has its own tag."""
        self._origin.setdefault("recompute", recompute_tag(name))

    def start_backward(self) -> None:
        """Attribute the next operators to the forward nodes of the running autograd nodes."""
        self._starts.append(torch_compat.get_sequence_nr())
        self._origins.append({})
        self._origin = {}
        self.casting = {}
        self.in_backward = True

    def create_node(self, *args: object, **kwargs: object) -> Node:
        """Create a node with the metadata of the captured node that is being traced."""
        node: Node = super().create_node(*args, **kwargs)
        if node.op not in {"placeholder", "output"}:
            self._attribute(node)
        return node

    def add_call(
        self, func: OpOverload | HigherOrderOperator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Node:
        """Add an operator call whose arguments already are nodes and constants."""
        name = func.overloadpacket.__name__ if isinstance(func, OpOverload) else func.name()
        node = add_call(self.graph, func, args, kwargs, name)
        self._attribute(node)
        return node

    def add_attribute(self, name: str, module: torch.fx.GraphModule) -> Node:
        """Add a node for a nested graph, which becomes the attribute ``name`` of the traced module."""
        self.root.add_module(name, module)
        node = self.graph.create_node("get_attr", name)
        self._attribute(node)
        return node

    def _attribute(self, node: Node) -> None:
        """Give a new node its metadata, and list it if it belongs to the backward."""
        if self.in_backward:
            self.backward_nodes.append(node)
        node.meta.update(self.origin())

    def origin(self) -> dict[str, Any]:
        """Return the metadata for a node that is recorded now. In the backward this is the forward node's metadata."""
        return self._backward_origin() if self.in_backward else self._origin

    def add_item(self, node: Node, index: int) -> Node:
        """Add a getitem node for one result of ``node``."""
        item = self.graph.create_node("call_function", operator.getitem, (node, index), {})
        item.meta.update({key: node.meta[key] for key in INHERITED if key in node.meta})
        if self.in_backward:
            self.backward_nodes.append(item)
        return item

    def create_arg(self, a: object) -> Any:
        """Return the node of an argument. Raise UnsupportedGraphError for a tensor that no recorded operator made."""
        if isinstance(a, torch.Tensor) and a.requires_grad:
            raise UnsupportedGraphError(
                f"the graph uses a tensor of size {tuple(a.shape)} that requires a gradient but is no input",
                why="a gradient can only be computed for inputs, so this one would be lost",
                fix="pass the tensor as an input, or make it an attribute of the graph's module",
            )
        if isinstance(a, FakeTensor):
            raise UnsupportedGraphError(
                f"the graph uses a tensor of size {tuple(a.shape)} that no recorded operator gave",
                why="it has no contents, so it cannot be a constant of the compiled graph",
                fix="please report the operator that it comes from",
            )
        return super().create_arg(a)

    def _backward_origin(self) -> dict[str, Any]:
        """Return the metadata of the forward node whose autograd node runs now."""
        running = torch_compat.current_autograd_node()
        if running is None:
            return {}
        index = bisect_right(self._starts, running._sequence_nr()) - 1
        # A recomputation tag applies to the forward value; a backward node is never recomputed.
        origin = self._origins[index] if index >= 0 else {}
        return {key: value for key, value in origin.items() if key != "recompute"}
