"""Copy the images of CPU convolutions and pools in kernels of their own, where ATen would copy them, or windows read gaps.

ATen's convolutions copy images that are neither contiguous nor channels last, with loops that are slow where the images are
transposed. A kernel copies them in tiles, together with the operators in front. Pools read each image several times, and
only neighbours in memory become vectors.
"""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch.fx import GraphModule
from torch.fx import Node as FxNode

from fxstack_inductor import torch_compat
from fxstack_inductor.lower.registry import find_overload
from fxstack_interchange.modules import copied_graph, make_graph_module

CLONE = find_overload("clone.default")
CONVOLUTION = find_overload("convolution.default")
POOLS = frozenset(map(find_overload, ("max_pool2d_with_indices.default", "avg_pool2d.default")))


def copy_images(graph_module: GraphModule) -> GraphModule:
    """Return a copy whose convolutions and pools read contiguous images, or ``graph_module`` itself if they do already."""
    if not any(map(_needs_copy, graph_module.graph.nodes)):
        return graph_module
    graph, _ = copied_graph(graph_module)
    for node in filter(_needs_copy, list(graph.nodes)):
        image = node.args[0]
        assert isinstance(image, FxNode)
        with graph.inserting_before(node):
            copy = graph.call_function(CLONE, (image,), {"memory_format": torch.contiguous_format})
        copy.meta = {**image.meta, "val": image.meta["val"].contiguous()}
        node.update_arg(0, copy)
    return make_graph_module(graph_module, graph, deferred=True)


def _needs_copy(node: FxNode) -> bool:
    """Whether ``node`` is a convolution of strided images that ATen makes contiguous, or a pool of images with gaps in rows."""
    if node.target is not CONVOLUTION and node.target not in POOLS:
        return False
    image, *weight = (operand.meta.get("val") for operand in node.all_input_nodes[:2])
    if not _is_strided(image) or not all(map(_is_strided, weight)) or image.is_contiguous():
        return False
    stride = image.stride(-1)
    return node.target is CONVOLUTION or (isinstance(stride, int) and stride > 1)


def _is_strided(value: object) -> TypeGuard[torch.Tensor]:
    """Whether ``value`` is a dense CPU tensor whose strides do not ask for channels last."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.device.type != "cpu":
        return False
    return torch_compat.suggest_memory_format(value) is torch.contiguous_format
