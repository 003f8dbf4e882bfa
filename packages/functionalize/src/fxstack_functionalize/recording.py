"""The proxy mode that records ATen calls: torch's own mode, with a short path for most calls.

Nearly all calls have static sizes and no constants. The mode decomposes calls that have a decomposition. For
other calls the short path finds the argument nodes, adds the node and maps the results. Calls with symbolic
sizes, lifted constants, data-dependent results or higher-order operators take torch's path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.fx import Node, Proxy
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode

from fxstack_functionalize import torch_compat
from fxstack_functionalize.operators.autocasts import dtype_inside
from fxstack_functionalize.torch_compat import (
    FakeTensor,
    HigherOrderOperator,
    OpOverload,
    TorchDispatchMode,
    autograd_would_have_decomposed,
    tree_leaves,
)
from fxstack_functionalize.torch_compat import ProxyTensor as _ProxyTensor
from fxstack_functionalize.torch_state import with_explicit_dtype
from fxstack_functionalize.tracer.aten_tracer import AtenTracer
from fxstack_functionalize.tracer.repeated_calls import record_each
from fxstack_interchange.operators.list_operators import ForEach
from fxstack_interchange.torch_facts.dtypes import convert_dtypes, have_other_dtypes, returned_dtypes
from fxstack_interchange.torch_facts.layouts import copy_with_strides, eager_strides, view_with_strides
from fxstack_interchange.torch_facts.undefined import with_undefined

View = tuple[OpOverload, tuple[Any, ...]]
"""The view operator that makes one of several results, and its arguments."""

SCALARS = (int, float, bool, str, complex, torch.dtype, torch.device, torch.layout, torch.memory_format)
UNSUPPORTED_TAGS = frozenset(
    {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.needs_exact_strides}
)
"""Tags of operators that take torch's path."""
QUERIES = frozenset(
    {torch.ops.aten.size.default, torch.ops.aten.stride.default, torch.ops.aten.storage_offset.default}
)
"""Operators that torch's own mode computes without recording."""
DEVICE = torch.ops.prim.device.default
"""Reads the device of a fake tensor, which torch calls when it wraps the tensor."""
PLAIN_TENSORS = (FakeTensor, torch.Tensor, torch.nn.Parameter)
TENSOR_TYPES = frozenset({"Tensor", "List[Tensor]"})

KNOWN_NAMES = frozenset(
    """torch _C DispatchKey PreDispatch super __init__ tracer tracing_mode pre_dispatch _allow_fake_constant PROXY
    _error_on_data_dependent_ops _mode_key _TorchDispatchModeKey enter_stack decomposition_table decomp_layers set
    _decomposition_table_stack _invoke_subgraph_names _invoke_subgraph_cache torch._inductor config
    emulate_precision_casts""".split()  # noqa: SIM905 - a list of them would take a screen
)
"""Names that the constructor of torch's mode uses in each version for which ``_initial_state`` is equivalent."""


def _is_known_constructor() -> bool:
    return KNOWN_NAMES.issuperset(ProxyTorchDispatchMode.__init__.__code__.co_names)


def _initial_state(tracer: AtenTracer) -> dict[str, Any]:
    """Return the attributes of a new mode by name.

    torch's constructor would import torch's own compiler (one second).
    """
    return {
        "tracer": tracer,
        "tracing_mode": "symbolic",
        "pre_dispatch": False,
        "_allow_fake_constant": False,
        "_error_on_data_dependent_ops": False,
        "_mode_key": torch_compat.TorchDispatchModeKey.PROXY,
        "enter_stack": [],
        "decomposition_table": {},
        "_decomposition_table_stack": [],
        "decomp_layers": 0,
        "_invoke_subgraph_names": set(),
        "_invoke_subgraph_cache": {},
        "emulate_precision_casts": False,
    }


def _select_views(results: Sequence[Any], source: Node, dim: int = 0) -> Iterator[View]:
    """Yield for each result of ``unbind`` the ``select`` that makes the same view."""
    for index, _ in enumerate(results):
        yield torch.ops.aten.select.int, (source, dim, index)


def _slice_views(results: Sequence[Any], source: Node, _sizes: object, dim: int = 0) -> Iterator[View]:
    """Yield for each part of a split the slice of ``source`` that makes the same view (``_sizes`` is unused)."""
    start = 0
    for result in results:
        end = start + result.shape[dim]
        yield torch.ops.aten.slice.Tensor, (source, dim, start, end)
        start = end


VIEWS_OF_RESULTS: dict[OpOverload, Callable[..., Iterator[View]]] = {
    torch.ops.aten.unbind.int: _select_views,
    torch.ops.aten.split.Tensor: _slice_views,
    torch.ops.aten.split_with_sizes.default: _slice_views,
}
"""View operators with several results: functions from the results and the arguments to one view per result."""


class _NotSimple(Exception):  # noqa: N818 - control flow, never seen outside
    """An argument or result needs torch's path."""


class RecordingMode(ProxyTorchDispatchMode):
    """Records each ATen call below autograd and functionalisation as a node, and runs the call on fake tensors."""

    supports_higher_order_operators = True

    def __init__(self, tracer: AtenTracer, table: Mapping[Any, Callable[..., Any]]) -> None:
        if _is_known_constructor():
            TorchDispatchMode.__init__(self, None)
            self.__dict__.update(_initial_state(tracer))
        else:
            super().__init__(tracer, "symbolic", False, False, False)
        self.map = tracer.tensor_tracker
        self.table = table
        self.default_dtype = torch.get_default_dtype()
        self._simple: dict[OpOverload, bool] = {}
        self._composite: dict[OpOverload, bool] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, so that torch does not import its own compiler only to skip this function."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is DEVICE and type(args[0]) is FakeTensor:  # read several times for each wrapped tensor
            return args[0].fake_device
        if isinstance(func, HigherOrderOperator):
            handler = func.python_key_table[ProxyTorchDispatchMode]
            return handler(self, *args, **(kwargs or {}))
        kwargs = kwargs or {}
        if func is torch.ops.aten.as_strided_scatter.default and not args[0].is_contiguous():
            # ATen refuses inputs that require a gradient, although a trace records no history.
            with self:
                args = (torch.ops.aten.detach.default(args[0]), *args[1:])
        result = self._run_operator(func, types, args, kwargs)
        dtypes = returned_dtypes(func, args, kwargs)
        if dtypes is not None and have_other_dtypes(result, dtypes):
            with self:
                result = convert_dtypes(result, dtypes)
        strides = eager_strides(func, args, kwargs, result)
        if strides is None or func.is_view:
            return result
        with self:
            return copy_with_strides(result, strides)

    def _run_operator(
        self, func: OpOverload, types: Sequence[type], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Cast, decompose, or record one call. Calls that the short path cannot handle go to torch's own mode."""
        if self.tracer.casting:
            low = dtype_inside(func, self.tracer.casting, args)
            if low is not None:
                with self:
                    cast = [arg.to(low) if isinstance(arg, torch.Tensor) else arg for arg in args]
                    return func(*cast, **kwargs).to(args[0].dtype)
        rule = self.table.get(func)
        if rule is not None or self._is_composite(func):
            result = self._decompose(func, rule, args, kwargs)
            if result is not NotImplemented:
                return result
        if torch.get_default_dtype() is not self.default_dtype and isinstance(func, OpOverload):
            # The recorded calls run under the default dtype that was set when the trace began.
            arguments = with_explicit_dtype(self, func, args, kwargs, self.default_dtype)
            if arguments is not None:
                with self:
                    return func(*arguments[0], **arguments[1])
        simple = self._simple.get(func)
        if simple is None:
            simple = self._simple[func] = self._is_simple(func)
        if simple:
            try:
                node_args = tuple([self._node_of(value) for value in args])
                node_kwargs = {key: self._node_of(value) for key, value in kwargs.items()}
            except _NotSimple:
                pass
            else:
                return self._record(func, args, kwargs, (node_args, node_kwargs))
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _decompose(
        self, func: OpOverload, rule: Callable[..., Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run ``rule``, or torch's decomposition of ``func`` if autograd would have used it."""
        leaves = tree_leaves((args, kwargs))
        if any(type(leaf) not in PLAIN_TENSORS for leaf in leaves if isinstance(leaf, torch.Tensor)):
            return NotImplemented
        if isinstance(rule, ForEach):
            return record_each(self.tracer, self, rule.function, rule.calls(args, kwargs))
        with self:
            result = NotImplemented if rule is None else rule(*args, **kwargs)
            if result is not NotImplemented or not self._is_composite(func):
                return result
            if autograd_would_have_decomposed(func, leaves):
                return func.decompose(*args, **kwargs)
        return NotImplemented

    def _is_composite(self, func: Any) -> bool:
        """Return whether torch has a decomposition of the operator ``func`` into other operators."""
        composite = self._composite.get(func)
        if composite is None:
            may_decompose = isinstance(func, OpOverload) and func.namespace != "prim" and func not in QUERIES
            composite = self._composite[func] = may_decompose and func._can_decompose()
        return composite

    def _is_simple(self, func: object) -> bool:
        """Return whether calls of ``func`` may take the short path: its results are tensors, and it reads no data."""
        return (
            isinstance(func, OpOverload)
            and func.namespace == "aten"
            and func is not torch.ops.aten.lift_fresh.default
            and all(str(result.type) in TENSOR_TYPES for result in func._schema.returns)
            and func not in QUERIES
            and not UNSUPPORTED_TAGS.intersection(func.tags)
        )

    def _record(
        self,
        func: OpOverload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        nodes: tuple[tuple[Any, ...], dict[str, Any]],
    ) -> Any:
        """Run the call on fake tensors, give the results eager's dtypes and strides, and add its node."""
        result = with_undefined(func, args, kwargs, func(*args, **kwargs))
        dtypes = returned_dtypes(func, args, kwargs)
        if dtypes is not None and have_other_dtypes(result, dtypes):
            result = convert_dtypes(result, dtypes)
        strides = eager_strides(func, args, kwargs, result)
        if strides is not None:
            result = view_with_strides(result, strides)
        tracer = self.tracer
        if func in VIEWS_OF_RESULTS:
            self._record_views_lazily(func, nodes, result)
            return result
        node = tracer.add_call(func, nodes[0], nodes[1])
        if isinstance(result, torch.Tensor):
            node.meta["val"] = result
            self.map[result] = _ProxyTensor(Proxy(node, tracer), None)
        elif result is not None:
            self._record_results(node, result)
        return result

    def _record_views_lazily(
        self, func: OpOverload, nodes: tuple[tuple[Any, ...], dict[str, Any]], results: Sequence[Any]
    ) -> None:
        """Record a view operator with several results as one view per result, when the result is first used.

        After a change torch remakes all views (``for row in x: row += 1``). Recording all of them would take
        quadratic time, and nearly all would be dead.
        """
        origin = self.tracer.origin()
        views = VIEWS_OF_RESULTS[func](results, *nodes[0], **nodes[1])
        for result, (target, arguments) in zip(results, views, strict=True):
            self.map.set_later(result, partial(self._record_view, target, arguments, result, origin))

    def _record_view(
        self, target: OpOverload, args: tuple[Any, ...], result: torch.Tensor, origin: dict[str, Any]
    ) -> _ProxyTensor:
        """Add the node of one view when the view is first used. ``origin``: node metadata from the recorded call."""
        node = self.tracer.add_call(target, args, {})
        node.meta.update(origin)
        node.meta["val"] = result
        return _ProxyTensor(Proxy(node, self.tracer), None)

    def _record_results(self, node: Node, results: Sequence[Any]) -> None:
        """Add a getitem for each result of an operator. A result may be a list of tensors."""
        node.meta["val"] = tuple(results)
        for index, result in enumerate(results):
            if isinstance(result, torch.Tensor):
                item = self.tracer.add_item(node, index)
                item.meta["val"] = result
                self.map[result] = _ProxyTensor(Proxy(item, self.tracer), None)
            elif isinstance(result, (list, tuple)):
                self._record_results(self.tracer.add_item(node, index), result)

    def _node_of(self, value: object) -> Any:
        """Return the node of an argument. Raise _NotSimple if only torch's path can make one."""
        if isinstance(value, torch.Tensor):
            entry = self.map.get(value)
            if entry is None or entry.constant is not None or value._has_symbolic_sizes_strides:
                raise _NotSimple
            return entry.proxy.node
        if value is None or isinstance(value, SCALARS):
            return value
        if isinstance(value, torch.SymFloat) and not (value.node.constant or value.node.expr.is_number):
            tracked = self.tracer.symnode_tracker.get(value)
            if tracked is not None:
                return tracked.force().node
        if isinstance(value, (list, tuple)):
            return type(value)([self._node_of(item) for item in value])
        raise _NotSimple
