"""The proxy mode that records ATen calls: torch's own, with a short path for the calls that need nothing special.

Nearly all calls have static sizes, no decomposition and no constants; for them, finding the argument nodes, adding
the node and remembering the results is all there is to do. Everything else (symbolic sizes, decompositions, lifted
constants, data-dependent results, higher-order operators) takes torch's path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import Node, Proxy
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode, _ProxyTensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fxstack_functionalize.tracer import AtenTracer

SCALARS = (
    int,
    float,
    bool,
    str,
    complex,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)
LONG_WAY = frozenset(
    {
        torch.Tag.data_dependent_output,
        torch.Tag.dynamic_output_shape,
        torch.Tag.needs_exact_strides,
    }
)
"""Tags of operators that take the long path."""


TENSORS = frozenset({"Tensor", "List[Tensor]"})


class _NotSimple(Exception):  # noqa: N818 - control flow, never seen outside
    """Some argument or result needs the long path."""


class RecordingMode(ProxyTorchDispatchMode):
    """See the module's docstring."""

    supports_higher_order_operators = True

    def __init__(self, tracer: AtenTracer, table: Mapping[Any, Callable[..., Any]]) -> None:
        super().__init__(tracer, "symbolic", False, False, False)
        self.map = tracer.tensor_tracker
        self.table = table
        self._simple: dict[OpOverload, bool] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if isinstance(func, HigherOrderOperator):
            handler = func.python_key_table[ProxyTorchDispatchMode]
            return handler(self, *args, **(kwargs or {}))
        simple = self._simple.get(func)
        if simple is None:
            simple = self._simple[func] = self._is_simple(func)
        if simple:
            try:
                node_args = self._nodes(args)
                node_kwargs = {key: self._node(value) for key, value in (kwargs or {}).items()}
            except _NotSimple:
                pass
            else:
                return self._record(func, args, kwargs or {}, (node_args, node_kwargs))
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _is_simple(self, func: Any) -> bool:
        return (
            isinstance(func, OpOverload)
            and func.namespace == "aten"
            and func not in self.table
            and func is not torch.ops.aten.lift_fresh.default
            and all(str(result.type) in TENSORS for result in func._schema.returns)
            and not LONG_WAY.intersection(func.tags)
            and not func._can_decompose()
        )

    def _record(
        self,
        func: OpOverload,
        args: Any,
        kwargs: Any,
        nodes: tuple[tuple[Any, ...], dict[str, Any]],
    ) -> Any:
        result = func(*args, **kwargs)
        tracer = self.tracer
        node = tracer.add_call(func, nodes[0], nodes[1])
        if isinstance(result, torch.Tensor):
            node.meta["val"] = result
            self.map[result] = _ProxyTensor(Proxy(node, tracer), None)
        elif result is not None:
            self._several(node, result)
        return result

    def _several(self, node: Node, results: Sequence[Any]) -> None:
        """Add a getitem for each result of an operator with several."""
        node.meta["val"] = tuple(results)
        for index, result in enumerate(results):
            if isinstance(result, torch.Tensor):
                item = self.tracer.add_item(node, index)
                item.meta["val"] = result
                self.map[result] = _ProxyTensor(Proxy(item, self.tracer), None)

    def _nodes(self, values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple([self._node(value) for value in values])

    def _node(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            entry = self.map.get(value)
            if entry is None or entry.constant is not None or value._has_symbolic_sizes_strides:
                raise _NotSimple
            return entry.proxy.node
        if value is None or isinstance(value, SCALARS):
            return value
        if isinstance(value, (list, tuple)):
            return type(value)([self._node(item) for item in value])
        raise _NotSimple
