"""The cache key of a captured graph: a hash of everything on which tracing and compiling depend.

The key contains symbolic sizes as expressions. Graphs that depend on something a hash cannot hold have no
key: data-dependent numbers, called modules, tensor subclasses, code that reads mutable objects (see
``code``). The key is equal in every process. A call target whose behaviour does not follow from its name
lists its parts in ``__fxstack_parts__``.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import replace
from operator import attrgetter
from typing import Any

import torch
from torch.fx import GraphModule, Node

from fxstack_functionalize.disk.code import CodeReader, higher_order_name, name_in_torch
from fxstack_functionalize.disk.sizes import Sizes
from fxstack_functionalize.options import AotOptions
from fxstack_functionalize.torch_compat import FakeTensor, HigherOrderOperator, OpOverload, OpOverloadPacket
from fxstack_functionalize.tracer.inputs import Captured, CapturedInput, TraceRequest
from fxstack_functionalize.views.differentiable_bases import is_plain_view, root_of
from fxstack_interchange import SaveError
from fxstack_interchange.format.encoding.arguments import encode
from fxstack_interchange.format.encoding.targets import is_tensor_method, name_of

# Limits: these programs have no key: programs on a GPU, with sizes that data decide, with symbolic sizes or
# tensors inside of the functions of control flow operators, with constants of more than a megabyte, under
# saved-tensor hooks, or compiled under a mode of the program. Only the backward that runs first is stored. It
# serves all sizes for which its guards hold.

logger = logging.getLogger(__name__)


def program_key(
    captured: Captured, sizes: Sizes, request: TraceRequest, options: AotOptions, salt: str
) -> str | None:
    """Return the key of the compiled program of ``captured``; None if the program has no key."""
    storages: dict[int, int] = {}
    roots: dict[int, int] = {}
    try:
        parts = [
            salt,
            repr((request, replace(options, on_error=None))),
            [_input(spec, storages, roots) for spec in captured.inputs],
            sizes.facts(),
            _graph(captured.graph_module),
            sorted(captured.owned.items()),
            [torch.__version__, torch.version.git_version],
        ]
    except SaveError as error:
        logger.debug("a program is not kept on disk: %s", error)
        return None
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _input(spec: CapturedInput, storages: dict[int, int], roots: dict[int, int]) -> list[Any]:
    """Describe one input. Tensors on one storage share a storage number, and views of one tensor share a root number."""
    record: list[Any] = [spec.kind, spec.target]
    fake = spec.fake
    if not isinstance(fake, torch.Tensor):
        return [*record, encode(fake)]
    if type(fake) is not FakeTensor or fake.layout is not torch.strided:
        raise SaveError("a tensor of a special kind")
    storage = fake.untyped_storage()
    numbers = [*fake.shape, *fake.stride(), fake.storage_offset(), storage.nbytes()]
    root = root_of(fake)
    number = roots.setdefault(id(root), len(roots))
    return [
        *record,
        str(fake.dtype),
        str(fake.device),
        fake.dim(),
        [encode(number) for number in numbers],
        storages.setdefault(storage._cdata, len(storages)),
        [fake.requires_grad, fake.is_leaf, fake.is_conj(), fake.is_neg(), fake.is_inference()],
        [number, None if root is fake else _viewed(root, is_plain=is_plain_view(fake))],
    ]


def _viewed(root: torch.Tensor, *, is_plain: bool) -> list[Any]:
    """Describe the base of a view, as far as the program depends on it."""
    if not (root.requires_grad and is_plain):
        return [root.requires_grad, is_plain]
    numbers = [*root.shape, *root.stride(), root.storage_offset()]
    return [str(root.dtype), root.is_leaf, root.dim(), [encode(number) for number in numbers]]


def _graph(module: GraphModule, *, inner: bool = False) -> list[Any]:
    return [_node(module, node, inner=inner) for node in module.graph.nodes]


def _node(module: GraphModule, node: Node, *, inner: bool) -> list[Any]:
    """Return the part of the key for one node: everything that decides what the node computes.

    ``inner``: the node is in a graph that another graph calls.
    """
    return [
        node.name,
        node.op,
        _target(module, node, inner=inner),
        [encode(argument) for argument in node.args],
        [[name, encode(argument)] for name, argument in node.kwargs.items()],
        str(node.meta.get("recompute")),
    ]


def _target(module: GraphModule, node: Node, *, inner: bool) -> Any:
    """Describe what a node calls. Raise SaveError if its meaning does not follow from names and versions."""
    if node.op == "call_function":
        return _function(node.target)
    if node.op == "call_method" and not is_tensor_method(node.target):
        raise SaveError(f"a method {node.target!r} of something that is no tensor")
    if node.op == "call_module":
        raise SaveError("a module that is called whole")
    if node.op == "get_attr":
        return _attribute(module, str(node.target), inner=inner)
    return str(node.target)


def _function(target: Any) -> Any:
    """Describe a called function by its name, and by its code if no version of torch or fxstack determines the code."""
    if isinstance(target, HigherOrderOperator):
        return higher_order_name(target)
    if isinstance(target, (OpOverload, OpOverloadPacket)):
        return [str(target), CodeReader().describe(target, str(target))]
    described_parts = getattr(target, "__fxstack_parts__", None)
    if described_parts is not None:
        return [
            f"{type(target).__module__}.{type(target).__qualname__}",
            CodeReader().describe(described_parts, target.__qualname__),
        ]
    return name_in_torch(target) or name_of(target)


def _attribute(module: GraphModule, path: str, *, inner: bool) -> Any:
    """Describe an attribute of a graph's module. A tensor needs its path only, because it is a described input."""
    value: Any = attrgetter(path)(module)
    if isinstance(value, torch.Tensor) and not inner:
        return path
    if isinstance(value, GraphModule):
        return [path, _graph(value, inner=True)]
    if isinstance(value, (torch.Tensor, torch.nn.Module)):
        raise SaveError(f"{path} of a graph, a {type(value).__name__}")
    return [path, encode(value)]
