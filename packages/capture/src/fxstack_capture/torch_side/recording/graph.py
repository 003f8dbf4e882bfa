"""The FX graph under construction: the builder, the target of the node of a call, and names of placeholders.

The builder makes placeholders and elements of results on first use.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import Any

import torch
from torch import fx

from fxstack_capture.breaks import graph_break
from fxstack_capture.operator_protocol import COMPARISON_NAMES, OUT_OF_PLACE, function_of
from fxstack_capture.shapes.geometry import Geometry
from fxstack_capture.sources import Source
from fxstack_capture.torch_compat import CustomOpDef, FakeTensor, HigherOrderOperator, OpOverload, tree_leaves
from fxstack_capture.torch_side.global_state.import_snapshot import torchs_own
from fxstack_capture.torch_side.numbers.symbols import Symbols
from fxstack_capture.torch_side.recording.constants import is_constant, is_plain
from fxstack_capture.torch_side.subclasses.wrapper_classes import is_wrapper
from fxstack_capture.trace.numpy_types import NUMBERS
from fxstack_capture.trace.state import Args, Kwargs

_INVOKE = torch.ops.higher_order.invoke_subgraph
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)

_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
"""The dtypes that torch uses for Python's number classes."""


class GraphBuilder:
    """Maps the tensors of the trace to nodes. Bound tensors stay alive, so that their ids stay unique."""

    def __init__(self, geometry: Geometry) -> None:
        self.graph = fx.Graph()
        self.symbols = Symbols(geometry, self.graph, self.placeholder)
        self.inputs: dict[fx.Node, Source] = {}
        self._last_placeholder: fx.Node = self.graph._root
        self._nodes: dict[int, fx.Node] = {}
        self._entered: dict[int, Source] = {}
        self._elements: dict[int, tuple[fx.Node, object]] = {}
        self._alive: list[object] = []
        self.replaced: set[int] = set()
        """The ids of inputs whose data the replacement code replaces after the graph has run."""
        self._names: dict[Callable[..., Any] | str, str] = {}
        self.construct_node: Callable[[torch.Tensor], fx.Node | None] = lambda _tensor: None
        """Makes a node for a wrapper tensor that the program has constructed of other tensors."""
        self.holds_scalars = False
        """Whether an argument was a NumPy scalar. A NumPy scalar is a plain number in the graph."""
        self.modules: dict[str, Any] = {}
        """The nested graphs and other objects that nodes of this graph hold, by a unique key."""

        self.held: dict[int, tuple[object, str]] = {}
        """Objects that the graph module holds, by id: the object, and its key in ``modules``."""

    # --- tensors and nodes -----------------------------------------------------------------------

    def enter(self, fake: torch.Tensor, source: Source) -> None:
        """Register ``fake`` as an input. The first use of ``fake`` makes the placeholder."""
        self._alive.append(fake)
        self._entered[id(fake)] = source

    @property
    def last_placeholder(self) -> fx.Node:
        """The last placeholder, after which nodes begin; the root of the graph if there are no placeholders."""
        return self._last_placeholder

    def is_known(self, fake: torch.Tensor) -> bool:
        """Return whether the graph has a node for the tensor, or can make one."""
        key = id(fake)
        return key in self._nodes or key in self._entered or key in self._elements

    def node_of(self, fake: torch.Tensor) -> fx.Node:
        """Return the node that computes the tensor. Break the graph if the tensor did not come from the program."""
        node = self._nodes.get(id(fake))
        return node if node is not None else self._make_node(fake)

    def maker_of(self, fake: torch.Tensor) -> fx.Node | None:
        """Return the node that computes ``fake``, or ``None`` for an input."""
        key = id(fake)
        return self.node_of(fake) if key in self._nodes or key in self._elements else None

    def _make_node(self, fake: torch.Tensor) -> fx.Node:
        """Make the node of an input, of an element of a result, or of a wrapper that the program has constructed."""
        key = id(fake)
        if key in self._entered:
            node = self.placeholder(self._entered[key], fake)
        elif key in self._elements:
            parent, index = self._elements[key]
            with self.graph.inserting_after(parent):  # the first use may be in a nested graph
                node = self.graph.call_function(operator.getitem, (parent, index))
            node.meta.update(parent.meta, val=fake, example_value=fake)
        else:
            node_of_wrapper = self.construct_node(fake)
            if node_of_wrapper is None:
                raise graph_break("unsupported-tensor", "a tensor that did not come from the program")
            node = node_of_wrapper
        self._nodes[key] = node
        return node

    def placeholder(self, source: Source, value: object) -> fx.Node:
        """Add a placeholder for the input ``source`` after the last one, and return it. ``value``: fake or number."""
        with self.graph.inserting_after(self._last_placeholder):
            node = self.graph.placeholder(placeholder_name(source))
        # ``x[0]`` and ``x_0`` have the same name. fx takes the names of parameters from the targets.
        node.target = node.name
        node.meta.update(val=value, example_value=value)
        self._last_placeholder = node
        self.inputs[node] = source
        return node

    def alias(self, fake: torch.Tensor, of: torch.Tensor) -> None:
        """Let ``fake`` have the node of ``of``: the program sees two tensors where the graph has one."""
        self._alive.append(fake)
        self._nodes[id(fake)] = self.node_of(of)

    def read_from(self, fake: torch.Tensor, source: Source, value: torch.Tensor) -> None:
        """Let the nodes so far read an input from another source, whose fake is ``value``.

        The replacement code changes the data of the input after the graph, and a backward must see the old data.
        """
        node = self._nodes.get(id(fake))
        if node is not None and node.op == "placeholder" and node.users:
            node.replace_all_uses_with(self.placeholder(source, value))

    def demand_present(self, fake: torch.Tensor) -> None:
        """Break the graph if ``fake`` has data that the replacement code replaces only after the graph.

        Called where a node or the program reads a tensor.
        """
        if id(fake) in self.replaced:
            raise graph_break("unsupported-object", "a tensor whose data was replaced in this graph")

    def is_read_without_history(self, fake: torch.Tensor) -> bool:
        """Return whether no node that uses the tensor has a result that requires grad. ``assigned_data`` asks."""
        node = self._nodes.get(id(fake))
        return node is None or not any(
            getattr(value, "requires_grad", False)
            for user in node.users
            for value in tree_leaves(user.meta.get("val"))
        )

    # --- rolling back ----------------------------------------------------------------------------

    def mark(self) -> fx.Node:
        """Return the last node of the graph at present, for ``nodes_since`` and ``roll_back``."""
        return self.graph._root.prev

    def nodes_since(self, mark: fx.Node) -> list[fx.Node]:
        """Return the operators after ``mark`` in graph order. Placeholders come first in a graph.

        An element of the container ``mark`` stands after it even if the element was used later, for the first time.
        """
        nodes = []
        node = self.graph._root.prev
        while node is not mark and node.op not in ("placeholder", "root"):
            nodes.append(node)
            node = node.prev
        return [node for node in reversed(nodes) if not (node.args[:1] == (mark,) and takes_element(node))]

    def roll_back(self, mark: fx.Node) -> None:
        """Remove all operators after ``mark``: those of a dry run, or those that moved to a nested graph.

        Placeholders stay.
        """
        removed = set(nodes := self.nodes_since(mark))
        for node in reversed(nodes):
            self.graph.erase_node(node)
        self._nodes = {key: n for key, n in self._nodes.items() if n not in removed}
        self._elements = {key: e for key, e in self._elements.items() if e[0] not in removed}
        self.symbols.forget(removed)

    # --- recording -------------------------------------------------------------------------------

    def argument(self, value: Any, tensors: list[torch.Tensor]) -> Any:
        """Return ``value`` as an argument of a node: nodes stand for tensors and symbolic numbers.

        Append the tensors to ``tensors``. Break the graph for a value that no node can hold.
        """
        kind = type(value)
        if isinstance(value, torch.Tensor):
            self.demand_present(value)
            tensors.append(value)
            return self.node_of(value)
        if kind in (list, tuple, torch.Size):
            mapped = [self.argument(item, tensors) for item in value]
            return mapped if kind is list else tuple(mapped)
        if is_constant(value):
            return value
        if kind in SYMBOLIC:
            return self.symbols.node_of(value)
        if kind is dict:
            return {key: self.argument(item, tensors) for key, item in value.items()}
        if kind is slice:
            parts = (value.start, value.stop, value.step)
            return slice(*(self.argument(part, tensors) for part in parts))
        if kind is range:
            return list(value)
        if kind in NUMBERS:
            self.holds_scalars = True
            return value.item()
        if kind is type and value in _DTYPES:
            return _DTYPES[value]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return kind(*(self.argument(item, tensors) for item in value))
        if isinstance(value, (OpOverload, HigherOrderOperator)):
            return value
        if id(value) in self.held:
            node = self.graph.get_attr(self.held[id(value)][1])
            node.meta.update(val=value, example_value=value)
            return node
        error = graph_break(
            "unsupported-call", f"an operator with an argument of {kind.__module__}.{kind.__qualname__}"
        )
        error.is_argument = True
        raise error

    def add(self, op: str, target: Callable[..., Any] | str, args: Args, kwargs: Kwargs) -> fx.Node:
        """Return a new node at the end of the graph. Its name comes from its target."""
        name = self._names.get(target)
        if name is None:
            name = self._names[target] = self.graph._target_to_str(target)
        return self.graph.create_node(op, target, args, kwargs, name)

    def module(self, prefix: str, module: object) -> fx.Node:
        """Return a ``get_attr`` node for ``module``, a nested graph, whose attribute name begins with ``prefix``."""
        return self.graph.get_attr(self.register_module(prefix, module))

    def register_module(self, prefix: str, module: object) -> str:
        """Return the key of a nested graph or another object in ``modules``. ``root_of`` gives the final attribute names."""
        name = f"{prefix}_{len(self.modules)}"
        self.modules[name] = module
        return name

    def hold(self, value: object, prefix: str) -> None:
        """Let the graph module hold an object, an argument of operators, under a name that begins with ``prefix``."""
        if id(value) not in self.held:
            self.held[id(value)] = value, self.register_module(prefix, value)

    def bind(self, result: object, node: fx.Node) -> None:
        """Register ``node`` as the node of ``result``, a tensor or a container of tensors and plain values."""
        node.meta.update(val=result, example_value=result)
        self._bind(result, node)

    def _bind(self, result: object, node: fx.Node) -> None:
        """Register ``node`` for a tensor or a symbolic number. Elements of containers get nodes at their first use."""
        if isinstance(result, torch.Tensor):
            if not self.is_known(result):
                self._alive.append(result)
                self._nodes[id(result)] = node
                if result._has_symbolic_sizes_strides:
                    self._bind_sizes(result, node)
        elif isinstance(result, SYMBOLIC):
            self.symbols.bind(result, node)
        elif isinstance(result, (tuple, list)):
            self._bind_elements(enumerate(result), node)
        elif isinstance(result, dict):
            self._bind_elements(result.items(), node)

    def _new_sizes(self, result: torch.Tensor) -> list[tuple[int, torch.SymInt]]:
        """Return the dimensions and sizes of a result that depend on data and that have no node yet."""
        return [
            (dim, size)
            for dim, size in enumerate(result.size())
            if self.symbols.is_new(size) and size.node.expr.is_symbol
        ]

    def _bind_sizes(self, result: torch.Tensor, node: fx.Node) -> None:
        """Add ``size`` nodes for the sizes of a result that depend on data."""
        for dim, size in self._new_sizes(result):
            number = self.graph.call_method("size", (node, dim))
            number.meta.update(node.meta, val=size, example_value=size)
            self.symbols.bind(size, number)

    def _bind_elements(self, items: Any, node: fx.Node) -> None:
        """Register the elements of a container. ``items``: pairs of index or key and element."""
        for index, item in items:
            if isinstance(item, torch.Tensor):
                if not self.is_known(item):
                    self._alive.append(item)
                    self._elements[id(item)] = node, index
                    if item._has_symbolic_sizes_strides and self._new_sizes(item):
                        self._bind_sizes(item, self.node_of(item))
            elif isinstance(item, (*SYMBOLIC, tuple, list, dict)):
                element = self.graph.call_function(operator.getitem, (node, index))
                element.meta.update(node.meta, val=item, example_value=item)
                self._bind(item, element)


def takes_element(node: fx.Node) -> bool:
    """Return whether a node takes an element of a container, not of a tensor."""
    return node.target is operator.getitem and not isinstance(node.args[0].meta.get("val"), torch.Tensor)


def root_of(graph: fx.Graph, modules: Mapping[str, Any]) -> torch.nn.Module:
    """Return the root of a graph module: the nested graphs to which the ``get_attr`` nodes of ``graph`` refer.

    The attributes with the same prefix are numbered from 0 in each graph, in the order of their nodes.
    """
    root = torch.nn.Module()
    names: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for node in graph.find_nodes(op="get_attr"):
        key = str(node.target)
        if key not in names:
            prefix = key.rpartition("_")[0]
            names[key] = f"{prefix}_{counts[prefix]}"
            counts[prefix] += 1
            setattr(root, names[key], modules[key])
        node.target = names[key]
        for user in list(node.users):
            if user.target is _INVOKE:  # the operator gets the name too
                user.update_arg(1, names[key])
    _name_like_targets(graph)
    return root


def _name_like_targets(graph: fx.Graph) -> None:
    """Give the first ``get_attr`` node of each attribute the name of the attribute, as torch's compiler does."""
    named = {str(node.target): node for node in reversed(graph.find_nodes(op="get_attr"))}
    taken = {node.name for node in graph.nodes if named.get(str(node.target)) is not node}
    for name, node in named.items():
        if name not in taken:
            # ``_rename`` would avoid the names of nodes that ``roll_back`` has removed.
            node.name = name
            graph._graph_namespace._rename_object(node, name)


def holds_only_graph_values(result: object) -> bool:
    """Return whether a node can have this result: tensors, symbolic numbers and plain data, or containers of them."""
    if isinstance(result, (FakeTensor, *SYMBOLIC)) or is_plain(result) or is_wrapper(result):
        return True
    if isinstance(result, (tuple, list)):
        return all(holds_only_graph_values(item) for item in result)
    if type(result) is dict:
        return all(holds_only_graph_values(item) for item in result.values())
    return False


_NOT_IDENTIFIER = re.compile(r"\W+")
_REPEATED = re.compile(r"_{2,}")


def placeholder_name(source: Source) -> str:
    """Return ``l_self_modules_fc_parameters_weight`` for ``self._modules['fc']._parameters['weight']``."""
    words = _NOT_IDENTIFIER.sub("_", source.name)
    return "l_" + _REPEATED.sub("_", words).strip("_")


# Special methods that become operators, because torch.fx and its passes know the operators as functions.
_OPERATORS: dict[str, Callable[..., Any]] = {
    f"__{name}__": function_of(name)
    for name in (
        *("getitem", "setitem", "add", "sub", "mul", "truediv", "mod", "matmul", "and", "or", "xor"),
        *("neg", "pos", "abs", "invert", *COMPARISON_NAMES),
    )
}

_RENAMED: dict[FunctionType, str] = {
    value: name
    for name, value in vars(torch.Tensor).items()
    if isinstance(value, FunctionType) and value.__name__ != name
}
"""Methods of ``torch.Tensor`` whose ``__name__`` differs: ``Tensor.__pow__.__name__`` is ``pow``."""


@dataclass(frozen=True, slots=True)
class Target:
    """``op`` and ``target`` of the node, and the positional arguments, which begin with a bound ``self``."""

    op: str
    target: Callable[..., Any] | str
    args: Args


def target_of(fn: Any, args: Args) -> Target:
    """Return the target of the node for a call ``fn(*args)``: a function, or a tensor method by name."""
    kind = type(fn)
    if kind is MethodType and isinstance(fn.__self__, torch.Tensor):
        return _method(fn.__func__.__name__, (fn.__self__, *args))
    if kind in (BuiltinFunctionType, MethodWrapperType) and isinstance(fn.__self__, torch.Tensor):
        return _method(fn.__name__, (fn.__self__, *args))
    if kind in (MethodDescriptorType, WrapperDescriptorType):
        return _method(fn.__name__, args)
    name = getattr(fn, "__name__", "")
    if kind is FunctionType:
        name = _RENAMED.get(fn, name)
    if getattr(torch.Tensor, name, None) is fn:
        return _method(name, args)
    if kind is BuiltinFunctionType and fn in OUT_OF_PLACE and not isinstance(args[0], torch.Tensor):
        # ``number += tensor`` computes ``number + tensor``, because a number cannot change in place.
        return Target("call_function", OUT_OF_PLACE[fn], args)
    if kind is BuiltinFunctionType and fn.__module__ == "torch":
        return Target("call_function", _printable(fn), args)
    if isinstance(fn, CustomOpDef):
        return Target("call_function", fn._opoverload, args)
    return Target("call_function", fn, args)


def without_from(target: Target, kwargs: Kwargs) -> tuple[Target, dict[str, Any]]:
    """Pass the argument ``from`` by position: ``x.random_(from=0, to=9)`` becomes ``x.random_(0, to=9)``."""
    # ``from`` is a keyword of Python, so the code of the graph cannot contain ``from=0``.
    rest = {name: value for name, value in kwargs.items() if name != "from"}
    return replace(target, args=(*target.args, kwargs["from"])), rest


def _method(name: str, args: Args) -> Target:
    """Return the target of a method call: an operator function where one is equal, else the method by name."""
    if name == "new" and len(args) > 1 and isinstance(args[1], torch.Size):
        # A node holds a size as a plain tuple. ``new`` takes a plain tuple as data.
        return Target("call_method", "new_empty", args)
    function = _OPERATORS.get(name)
    # A special method may return NotImplemented. The operator then calls the reflected method. So both are
    # equal only between tensors and numbers.
    if function is not None and all(isinstance(a, (torch.Tensor, int, float)) for a in args[1:2]):
        return Target("call_function", function, args)
    return Target("call_method", name, args)


def _printable(fn: BuiltinFunctionType) -> Any:
    """Return ``fn``, or the operator packet if ``torch.<name>`` is a Python function around ``fn``."""
    name = fn.__name__
    return fn if torchs_own(name, fn) is fn else getattr(torch.ops.aten, name, fn)
