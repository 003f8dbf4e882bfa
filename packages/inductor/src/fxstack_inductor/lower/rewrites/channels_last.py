"""Lay out the images of convolutions channels last: of half precision on a GPU, as cuDNN's matrix instructions need them,
and on a CPU, where a convolution of single points then is a product of matrices.

Of images in another layout, cuDNN and oneDNN copy operands and result at each call. Here the operands are converted once, in
the graph, and the operators behind a convolution pass its layout on, as eager's do. Inputs and results of the graph, and
operators whose results depend on strides, keep eager's layouts.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch.fx import Graph, GraphModule
from torch.fx import Node as FxNode

from fxstack_inductor.lower.rewrites.point_products import CONVOLUTION, is_product
from fxstack_inductor.lower.rewrites.shared_operands import argument_key
from fxstack_inductor.torch_compat import FakeTensor, OpOverload
from fxstack_interchange.modules import copied_graph, make_graph_module

aten = torch.ops.aten
CPU = "cpu"
DTYPES = {"cuda": (torch.bfloat16, torch.float16), CPU: (torch.float32, torch.bfloat16)}
"""By device. cuDNN multiplies float32 without matrix instructions, unless the program allows TensorFloat-32."""
BY_STRIDES = frozenset(
    {
        "as_strided",
        "as_strided_copy",
        "as_strided_scatter",
        "empty_strided",
        "new_empty_strided",
        "resize",
        "set",
    }
)
"""Operators whose results depend on the strides of their arguments, or on memory behind them."""
NORMS = (
    aten.native_batch_norm.default,
    aten._native_batch_norm_legit_no_training.default,
    aten.native_group_norm.default,
)
"""Operators whose first result has the layout of the first argument; the layouts of the others are fixed.

The fake kernel of group norm gives a single image strides of which others infer another layout.
"""
MOST_COPIED = {"cuda": 0.5, CPU: 0.2}
"""The most elements that may be copied for layouts, in parts of the elements of all operands and results, by device.

On a CPU, of nine networks those below it are 1.0 to 1.4 times as fast in this layout, those above it 0.95 to 0.97
(docs/results/models.md).
"""
MOST_COPIED_BY_DEPTHWISE = {torch.float32: 0.8, torch.bfloat16: 1.1}
"""The same for CPU graphs of depthwise convolutions alone: of operands in eager's layout oneDNN makes copies of its own.

Of eight shapes in float32, copies of operand and result in kernels of their own are 0.65 to 1.7 times as fast, 0.8 in the
mean; in bfloat16, on a processor that has its instructions, 0.98 to 2.5 times (AVX-512).
"""
FUSED_COPY = 0.25
"""What a copy counts that is another place of a store, in such graphs."""


class _StaysError(Exception):
    """The graph must stay: a result is not channels last, or a copy cannot restore a layout."""


def channels_last(
    graph_module: GraphModule, device: str = "cuda", constant: Collection[str] = ()
) -> GraphModule:
    """Return ``graph_module``, or a copy with images in channels-last layout where this needs few copies.

    ``constant``: names of the nodes that are copied once and not in each call.
    """
    nodes = graph_module.graph.nodes
    convolutions = [node for node in nodes if _is_convertible(node, device)]
    if not convolutions or any(map(_is_symbolic, nodes)):
        return graph_module
    weights = {node.args[1] for node in convolutions}
    varying = [w.meta["val"] for w in weights if w.name not in constant]
    copied = sum(value.numel() for value in varying if not _is_channels_last(value))
    # A quick look: images are copied, too.
    most, fused = MOST_COPIED[device], 1.0
    if device == CPU and all(map(_is_depthwise, convolutions)):
        most, fused = MOST_COPIED_BY_DEPTHWISE[convolutions[0].meta["val"].dtype], FUSED_COPY
    if copied > most * sum(map(_touched, convolutions)):
        return graph_module
    graph, _ = copied_graph(graph_module)
    try:
        pays = _Conversion(graph, device, constant, fused).run(most)
    except _StaysError:
        return graph_module
    return make_graph_module(graph_module, graph, deferred=True) if pays else graph_module


def _is_convertible(node: FxNode, device: str) -> bool:
    """Whether the node is a convolution of images that cuDNN or oneDNN computes channels last.

    Convolutions in groups of several channels are slow in this layout, and depthwise ones of bfloat16 on a CPU without
    instructions for it (six times as slow).
    """
    if node.target is not CONVOLUTION:
        return False
    values = [operand.meta.get("val") for operand in node.args[:2]]
    if not all(
        isinstance(v, FakeTensor)
        and v.dim() == 4
        and v.dtype in DTYPES.get(device, ())
        and v.device.type == device
        for v in values
    ):
        return False
    slow = device == CPU and values[1].dtype is torch.bfloat16 and not torch.cpu._is_avx512_bf16_supported()
    return bool(node.args[8] == 1 or (_is_depthwise(node) and not slow))


def _is_depthwise(node: FxNode) -> bool:
    """Whether each channel has filters of its own."""
    return bool(node.args[8] > 1 and node.args[1].meta["val"].shape[1] == 1)


def _is_channels_last(value: torch.Tensor) -> bool:
    return bool(value.is_contiguous(memory_format=torch.channels_last))


def _touched(node: FxNode) -> int:
    """Return the number of elements of the operands and results of a convolution."""
    values = [*(operand.meta["val"] for operand in node.args[:2]), *_tensors(node.meta["val"])]
    return sum(value.numel() for value in values)


def _tensors(value: object) -> Iterator[torch.Tensor]:
    """Yield the tensors of a fake value."""
    for part in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(part, torch.Tensor):
            yield part


def _keeps_layout(node: FxNode, args: tuple[Any, ...], old: object) -> bool:
    """Whether the first result has exactly the layout of the first argument, a dense tensor: no fake kernel need say so.

    The results of a pointwise operator have the layout that its operands agree on.
    """
    first, result = args[0] if args else None, old[0] if isinstance(old, tuple) and old else old
    if not (isinstance(first, torch.Tensor) and isinstance(result, torch.Tensor)) or first.dim() != 4:
        return False
    if first.shape != result.shape or first.dtype != result.dtype:
        return False
    if not _is_channels_last(first) or first.storage_offset():
        return False
    if node.target in NORMS:
        return True
    pointwise = isinstance(old, torch.Tensor) and _is_pointwise(node)
    operands = [*_tensors(args), *_tensors(tuple(node.kwargs.values()))]
    return pointwise and all(
        x.shape == first.shape and x.stride() == first.stride() and x.dtype == first.dtype for x in operands
    )


def _layouts(value: object) -> tuple[object, ...]:
    """Return all that a fake kernel reads of a value's tensors; another value is its own key."""
    found = tuple((t.shape, t.stride(), t.storage_offset(), t.dtype, t.device) for t in _tensors(value))
    return found or (type(value), repr(value))


def _is_symbolic(node: FxNode) -> bool:
    value = node.meta.get("val")
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return True
    return any(not isinstance(size, int) for tensor in _tensors(value) for size in tensor.shape)


class _Conversion:
    """The conversion of one graph, in place."""

    def __init__(self, graph: Graph, device: str, constant: Collection[str], fused: float) -> None:
        self._graph, self._device, self._constant = graph, device, constant
        self._fused = fused
        """What a copied element of a pointwise operator counts."""
        self._old: dict[FxNode, Any] = {}
        """The fake values in eager's layout of the nodes that have another layout now."""
        self._restored: dict[FxNode, FxNode] = {}
        self._converted: dict[FxNode, FxNode] = {}
        self._products = False
        """Whether a convolution is a product of matrices in this layout."""
        self._known: dict[object, Any] = {}
        """Fake results by operator and layouts of arguments: networks repeat their layers, and fake kernels are slow."""
        self._copied, self._used = 0.0, 0
        """The elements that layouts copy, and those of all operands and results of convolutions."""

    def run(self, most: float) -> bool:
        """Convert the graph; return whether that changes anything, and copies at most ``most`` of what is used."""
        for node in list(self._graph.nodes):
            if node.op == "output":
                self._restore_inputs(node)
            elif node.op == "call_function":
                self._visit(node)
        return bool(self._converted or self._products) and self._copied <= most * self._used

    def _visit(self, node: FxNode) -> None:
        """Give the node operands in the right layout, and compute the layout of its results."""
        if _is_convertible(node, self._device):
            self._products |= self._device == CPU and is_product(node)
            self._convert_operands(node)
            self._propagate(node)
            self._finish_convolution(node)
        elif any(arg in self._old for arg in node.all_input_nodes):
            # A convolution that is slow in this layout, such as one in groups, gets eager's.
            if node.target is not CONVOLUTION and _passes_layouts_on(node):
                self._propagate(node)
            else:
                self._restore_inputs(node)

    def _convert_operands(self, node: FxNode) -> None:
        """Make the operands of a convolution channels last."""
        for position in (0, 1):
            node.update_arg(position, self._as_channels_last(node.args[position], node))
        self._used += _touched(node)

    def _finish_convolution(self, node: FxNode) -> None:
        """Add the bias behind the convolution, since cuDNN does not add it (``decompositions.convolution_bias``).

        Raises:
            _StaysError: another library computes the convolution, in another layout.
        """
        bias = node.args[2]
        if not _is_channels_last(node.meta["val"]):
            raise _StaysError
        if bias is None or self._device == CPU:
            return
        node.update_arg(2, None)
        with self._graph.inserting_after(node):
            view = self._call(f"{node.name}_bias", aten.view.default, bias, [-1, 1, 1])
        view.meta = {**node.meta, "val": self._value(view)}
        with self._graph.inserting_after(view):
            total = self._call(f"{node.name}_biased", aten.add.Tensor, node, view)
        total.meta = {**node.meta, "val": self._old.get(node, node.meta["val"])}
        node.replace_all_uses_with(total, delete_user_cb=lambda user: user is not total)
        self._propagate(total)

    def _call(self, name: str, target: Any, *args: Any, **kwargs: Any) -> FxNode:
        return self._graph.create_node("call_function", target, args, kwargs, name=name)

    def _as_channels_last(self, node: FxNode, user: FxNode) -> FxNode:
        """Return the node, or its copy in channels-last layout, which begins in front of the first ``user``."""
        value = node.meta["val"]
        if _is_channels_last(value):
            return node
        if node not in self._converted:
            with self._graph.inserting_before(user):
                copy = self._copy(node, "channels_last", torch.channels_last)
            copy.meta["val"] = self._value(copy)
            self._converted[node] = copy
        return self._converted[node]

    def _copy(self, node: FxNode, name: str, memory_format: torch.memory_format) -> FxNode:
        value = node.meta["val"]
        # Of an image with gaps in its rows, a convolution makes a copy anyway.
        if node.name not in self._constant and 1 in value.stride():
            self._copied += value.numel() * (self._fused if _is_pointwise(node) else 1)
        copy = self._call(f"{node.name}_{name}", aten.clone.default, node, memory_format=memory_format)
        copy.meta = dict(node.meta)
        return copy

    def _value(self, node: FxNode) -> Any:
        """Return the fake value that the node's operator gives for the present values of its arguments."""
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda arg: arg.meta["val"])
        if node.target is operator.getitem:
            return args[0][args[1]]
        old = node.meta.get("val")
        if _keeps_layout(node, args, old):
            return (args[0], *old[1:]) if isinstance(old, tuple) else args[0]
        layouts = {arg: _layouts(arg.meta["val"]) for arg in node.all_input_nodes}
        key = node.target, argument_key(node.args, layouts), argument_key(node.kwargs, layouts)
        if key in self._known and not _is_view(node):
            return self._known[key]
        mode = next(v.fake_mode for arg in node.all_input_nodes for v in _tensors(arg.meta["val"]))
        with mode:
            value = self._known[key] = node.target(*args, **kwargs)
        return value

    def _propagate(self, node: FxNode) -> None:
        """Compute the layout of a node's results; a node that refuses the layout of its inputs gets eager's."""
        try:
            value = self._value(node)
        except (RuntimeError, ValueError):
            self._restore_inputs(node)
            return
        old = node.meta.get("val")  # missing if the result is None
        if not all(map(_same_layout, _tensors(value), _tensors(old))):
            self._old[node] = old
            node.meta["val"] = value

    def _restore_inputs(self, node: FxNode) -> None:
        """Give the node its inputs in eager's layout."""
        for arg in node.all_input_nodes:
            if arg in self._old:
                node.replace_input_with(arg, self._in_old_layout(arg))

    def _in_old_layout(self, node: FxNode) -> FxNode:
        """Return a copy of a changed node in eager's layout: for a view, the view of a copy, which keeps the sharing."""
        if node not in self._restored:
            with self._graph.inserting_after(node):
                if _is_view(node):
                    made = self._graph.node_copy(node)
                    self._restore_inputs(made)
                else:
                    made = self._copy(node, "restored", _format_of(self._old[node]))
            made.meta = {**node.meta, "val": self._old[node]}
            self._restored[node] = made
        return self._restored[node]


def _passes_layouts_on(node: FxNode) -> bool:
    """Whether the node's values depend on the values of its arguments only, not on their strides.

    Random numbers are drawn in the order of memory.
    """
    target = node.target
    if target is operator.getitem:
        return True
    return (
        isinstance(target, OpOverload)
        and target.namespace == "aten"
        and not target._schema.is_mutable
        and target._schema.name.partition("::")[2] not in BY_STRIDES
        and torch.Tag.nondeterministic_seeded not in target.tags
        and all("val" in arg.meta for arg in node.all_input_nodes)
    )


def _is_pointwise(node: FxNode) -> bool:
    pointwise = isinstance(node.target, OpOverload) and torch.Tag.pointwise in node.target.tags
    return pointwise and not _is_view(node)


def _is_view(node: FxNode) -> bool:
    """Whether the node's results share memory with its arguments."""
    if node.target is operator.getitem:
        return _is_view(node.args[0])
    return isinstance(node.target, OpOverload) and any(r.alias_info for r in node.target._schema.returns)


def _same_layout(new: torch.Tensor, old: torch.Tensor) -> bool:
    """Whether two tensors of equal sizes have the same order in memory."""
    pairs = zip(old.shape, new.stride(), old.stride(), strict=True)
    return all(a == b for size, a, b in pairs if size != 1)


def _format_of(value: object) -> torch.memory_format:
    """Return the format of a copy that has the strides of ``value``.

    Raises:
        _StaysError: there is none.
    """
    for memory_format in (torch.contiguous_format, torch.channels_last):
        if isinstance(value, torch.Tensor) and value.is_contiguous(memory_format=memory_format):
            return memory_format
    raise _StaysError
