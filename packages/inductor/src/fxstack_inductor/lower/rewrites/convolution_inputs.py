"""Copy the images of CPU convolutions in kernels of their own, where ATen would copy them first.

ATen's convolutions copy images that are neither contiguous nor channels last, with loops that are slow where the images are
transposed. A kernel copies them in tiles, together with the operators in front.
"""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch.fx import GraphModule
from torch.fx import Node as FxNode

from fxstack_inductor import torch_compat
from fxstack_inductor.lower.registry import find_overload
from fxstack_interchange.modules import copied_graph, make_graph_module

CONVOLUTION, CLONE = find_overload("convolution.default"), find_overload("clone.default")


def copy_images(graph_module: GraphModule) -> GraphModule:
    """Return a copy whose convolutions read contiguous images, or ``graph_module`` itself if they do already."""
    if not any(map(_is_copied_by_aten, graph_module.graph.nodes)):
        return graph_module
    graph, _ = copied_graph(graph_module)
    for node in filter(_is_copied_by_aten, list(graph.nodes)):
        image = node.args[0]
        assert isinstance(image, FxNode)
        with graph.inserting_before(node):
            copy = graph.call_function(CLONE, (image,), {"memory_format": torch.contiguous_format})
        copy.meta = {**image.meta, "val": image.meta["val"].contiguous()}
        node.update_arg(0, copy)
    return make_graph_module(graph_module, graph)


def _is_copied_by_aten(node: FxNode) -> bool:
    """Whether ``node`` is a convolution of strided images that ATen makes contiguous."""
    if node.target is not CONVOLUTION:
        return False
    image, weight = (operand.meta.get("val") for operand in node.all_input_nodes[:2])
    return _is_strided(image) and _is_strided(weight) and not image.is_contiguous()


def _is_strided(value: object) -> TypeGuard[torch.Tensor]:
    """Whether ``value`` is a dense CPU tensor whose strides do not ask for channels last."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.device.type != "cpu":
        return False
    return torch_compat.suggest_memory_format(value) is torch.contiguous_format
