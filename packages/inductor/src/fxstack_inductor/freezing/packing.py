"""Replace products and convolutions with constant weights by those of oneDNN over weights stored in reading order.

Whether oneDNN is faster than torch's product depends on the machine, the sizes and the dtype, so both are
timed, once per process for each combination. A convolution of channels-last images is oneDNN's in any case, and stores
its weights in reading order at each call.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch.fx import Graph
from torch.fx import Node as FxNode

from fxstack_inductor import torch_compat
from fxstack_inductor.freezing.constants import PACKED
from fxstack_inductor.lower.rewrites.point_products import is_product

aten = torch.ops.aten
DTYPES = (torch.float32, torch.bfloat16)
MIN_ELEMENTS = 1 << 14
"""Smaller matrices are not worth the call of another library."""
ROUNDS = 5
"""Number of timed runs of each product; the shortest time counts."""
GAIN = 0.95
"""A packed product is used if it takes at most this fraction of the time."""


def pack_products(graph: Graph, constant: set[FxNode]) -> int:
    """Replace products of ``graph`` in place, where this is faster; return how many were replaced.

    ``constant`` are the nodes that depend on the model's state alone.
    """
    if not available():
        return 0
    count = 0
    for node in list(graph.nodes):
        factors = _product(node, constant)
        if factors is None:
            continue
        bias, x, matrix = factors
        rows, depth = x.meta["val"].shape
        if not faster(rows, depth, matrix.meta["val"].shape[1], matrix.meta["val"].dtype):
            continue
        with graph.inserting_before(node):
            packed = graph.call_function(pack, (matrix, rows))
            # Only oneDNN reads the packed matrix; its fake value is a tensor of equally many bytes.
            packed.meta.update(val=matrix.meta["val"], **{PACKED: True})
            arguments: tuple[Any, ...] = (x, packed, bias, "none", [], "")
            product = graph.call_function(torch.ops.mkldnn._linear_pointwise.default, arguments)
        product.meta.update(node.meta)
        node.replace_all_uses_with(product)
        graph.erase_node(node)
        count += 1
    return count


# oneDNN would apply relu to the result as well, but turns NaN into 0.
def pack_convolutions(graph: Graph, constant: set[FxNode]) -> int:
    """Replace convolutions of channels-last images in place; return how many were replaced.

    ``constant`` are the nodes that depend on the model's state alone.
    """
    if not available():
        return 0
    convolutions = graph.find_nodes(op="call_function", target=aten.convolution.default)
    found = [node for node in convolutions if _may_pack(node, constant)]
    for node in found:
        x, weight, bias, stride, padding, dilation, _, _, groups = node.args
        with graph.inserting_before(node):
            sizes = list(x.meta["val"].shape)
            packed = graph.call_function(pack_weight, (weight, padding, stride, dilation, groups, sizes))
            packed.meta.update(val=weight.meta["val"], **{PACKED: True})
            operands: tuple[Any, ...] = (x, packed, bias, padding, stride, dilation, groups, "none", [], "")
            made = graph.call_function(torch.ops.mkldnn._convolution_pointwise.default, operands)
        made.meta.update(node.meta)
        node.replace_all_uses_with(made)
        graph.erase_node(node)
    return len(found)


def _may_pack(node: FxNode, constant: set[FxNode]) -> bool:
    """Whether a convolution of more than single points has channels-last images, constant weights and no symbolic sizes."""
    x, weight, _, *_, transposed, _, _ = node.args
    if transposed or weight not in constant or x in constant or is_product(node):
        return False  # the product of matrices, which is as fast, leaves the bias to the kernel behind it
    values = [x.meta["val"], weight.meta["val"], node.meta["val"]]
    return all(
        value.dim() == 4
        and value.dtype is torch.float32
        and not _symbolic(value)
        and value.is_contiguous(memory_format=torch.channels_last)
        for value in values
    )


def pack_weight(weight: torch.Tensor, *settings: Any) -> torch.Tensor:
    """Return a convolution's ``weight`` in oneDNN's format; ``settings``: padding to groups, and the sizes of the images."""
    packed: torch.Tensor = torch.ops.mkldnn._reorder_convolution_weight(weight, *settings)
    return packed


def available() -> bool:
    """Whether this torch has oneDNN's operators over packed weights and may use them; otherwise nothing is packed."""
    names = (
        "_linear_pointwise",
        "_reorder_linear_weight",
        "_convolution_pointwise",
        "_reorder_convolution_weight",
    )
    enabled = torch.backends.mkldnn.is_available() and torch_compat.get_mkldnn_enabled()
    return bool(enabled) and all(hasattr(torch.ops.mkldnn, name) for name in names)


def pack(matrix: torch.Tensor, rows: int) -> torch.Tensor:
    """Return ``matrix`` (depth by columns) in oneDNN's format for products with ``rows`` rows."""
    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(matrix.t().contiguous(), rows)
    return packed


def _product(node: FxNode, constant: set[FxNode]) -> tuple[FxNode | None, FxNode, FxNode] | None:
    """Return (bias or None, left factor, right factor) of a product that may be packed; None for other nodes."""
    if node.target not in {aten.mm.default, aten.addmm.default} or node.kwargs:
        return None
    bias, x, matrix = node.args if len(node.args) == 3 else (None, *node.args)
    if not isinstance(x, FxNode) or not isinstance(matrix, FxNode) or matrix not in constant:
        return None
    if x in constant or _symbolic(x.meta["val"]):
        return None
    value, result = matrix.meta["val"], node.meta["val"]
    if value.dtype is torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return None
    alike = value.dtype in DTYPES and x.meta["val"].dtype == value.dtype == result.dtype
    if not alike or value.numel() < MIN_ELEMENTS or not result.is_contiguous():
        return None
    if bias is not None and (bias not in constant or bias.meta["val"].shape != value.shape[1:]):
        return None
    return bias, x, matrix


def _symbolic(value: Any) -> bool:
    """Whether a matrix has symbolic sizes or no elements."""
    return bool(value._has_symbolic_sizes_strides) or value.numel() == 0


@lru_cache(maxsize=4096)
def faster(rows: int, depth: int, columns: int, dtype: torch.dtype) -> bool:
    """Whether the packed product of these sizes is faster than torch's on this machine, by measurement."""
    x, matrix = torch.ones(rows, depth, dtype=dtype), torch.ones(columns, depth, dtype=dtype)
    bias = torch.ones(columns, dtype=dtype)
    packed = pack(matrix.t(), rows)
    ways: tuple[Callable[[], Any], ...] = (
        lambda: torch.addmm(bias, x, matrix.t()),
        lambda: torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], ""),
    )
    shortest = [float("inf")] * len(ways)
    with torch.no_grad():
        for product in ways:
            product()
        for _ in range(ROUNDS):
            for k, product in enumerate(ways):
                start = time.perf_counter()
                product()
                shortest[k] = min(shortest[k], time.perf_counter() - start)
    return shortest[1] < GAIN * shortest[0]
