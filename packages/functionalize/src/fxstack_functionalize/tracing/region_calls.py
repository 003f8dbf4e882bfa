"""Record a call of a region as one node of the forward and one node of the backward.

The first call for a kind of operands restarts the trace: between both traces, the body is traced on its own.
A call whose gradient does not have the layout for which the backward was traced, restarts the trace as well,
and is traced in line from then on.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule, Node, Proxy
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from fxstack_functionalize import torch_compat
from fxstack_functionalize.errors import FunctionalizeError
from fxstack_functionalize.regions.cut import make_region
from fxstack_functionalize.regions.fused import refused_region
from fxstack_functionalize.regions.labels import UnlabelledError, kind_of
from fxstack_functionalize.regions.outline import INVOKE
from fxstack_functionalize.regions.sums import added_inputs, added_products, is_sum_of_products, products
from fxstack_functionalize.regions.table import NotSharedError, Region, RegionTable
from fxstack_functionalize.tracer.aten_tracer import AtenTracer, track
from fxstack_functionalize.tracer.engine import Engine, current_value, storage_key
from fxstack_functionalize.tracer.inputs import Captured, RestartTraceError
from fxstack_functionalize.views.memory_layout import on_values, replace_value
from fxstack_interchange import InputKind, StageGraph


def call_region(
    table: RegionTable | None, tracer: AtenTracer, engine: Engine, node: Node, arguments: Sequence[Any]
) -> Any:
    """Record a call of ``invoke_subgraph``, the captured ``node``.

    Raises:
        NotSharedError: if the call has to be traced in line.
        RestartTraceError: if the body has not been traced for operands of these kinds.
    """
    body, _, *operands = arguments
    if table is None or not isinstance(body, GraphModule):
        raise NotSharedError("this trace has no regions")
    if node in table.in_line:
        raise NotSharedError(table.in_line[node])
    region = _find(table, engine, node, body, operands)
    if region.traced.info.mutated:
        memory = [storage_key(x) for x in operands if isinstance(x, torch.Tensor)]
        if len(set(memory)) < len(memory):
            raise NotSharedError("it writes to an operand that shares memory with another operand")
    if node.meta.get("recompute") and region.draws:
        raise NotSharedError("a checkpoint computes it again, which would draw other random numbers")
    if table.is_automatic(node):
        _check_boundary(region, node)
    table.calls[node] = region.name
    return _Call(table, tracer, engine, region, node).run(operands)


def _check_boundary(region: Region, node: Node) -> None:
    """Raise NotSharedError if a sum of products has terms on both sides of the boundary (``regions.sums``)."""
    if products(region.forward.graph).intersection(range(region.traced.info.output_count)):
        raise NotSharedError("a result is a matrix product, which a kernel may add to another", always=True)
    if region.backward is not None and added_products(region.backward.graph):
        raise NotSharedError(
            "a gradient is a sum of matrix products, added in an uncertain order", always=True
        )
    gradients = () if region.backward is None else products(region.backward.graph)
    for position in gradients:
        operand = node.args[2 + region.traced.info.grad_inputs[position]]
        if isinstance(operand, Node) and len(operand.users) > 1:
            raise NotSharedError(
                "a gradient is a matrix product, which a kernel may add to those of other uses of the operand",
                always=True,
            )


def check_sums(table: RegionTable | None, stage_graph: StageGraph) -> None:
    """Raise RestartTraceError if an automatic region has a sum next to its boundary whose order is uncertain."""
    automatic = (
        {}
        if table is None
        else {name: call for call, name in table.calls.items() if table.is_automatic(call)}
    )
    if table is None or not automatic:
        return
    tangents = [spec.name for spec in stage_graph.signature.inputs_of(InputKind.TANGENT)]
    name = refused_region(stage_graph.graph_module, tangents, set(automatic))
    if name is None:
        return
    why = NotSharedError(
        "a kernel may add the terms of a sum next to its boundary in another order", always=True
    )

    def change(captured: Captured) -> Captured:
        table.refuse(automatic[name], why)
        return captured

    raise RestartTraceError(change)


def _find(
    table: RegionTable, engine: Engine, node: Node, body: GraphModule, operands: Sequence[Any]
) -> Region:
    """Return the region for ``operands``. Restart the trace if the body has not been traced for such operands."""
    if torch_compat.is_any_autocast_enabled():
        raise NotSharedError("autocast is on, which casts operands once for all of their uses")
    plain = [_plain(engine, operand) for operand in operands]
    try:
        kinds = tuple(
            (kind_of(inner), isinstance(outer, torch.Tensor) and outer.requires_grad)
            for inner, outer in zip(plain, operands, strict=True)
        )
    except UnlabelledError:
        raise NotSharedError("an operand is of a kind that regions do not have") from None
    key = (body, kinds, torch.is_grad_enabled(), torch.get_default_dtype())
    region = table.regions.get(key)
    if region is None:
        if node in table.tried and any(map(_has_unbacked_symbol, plain)):
            raise NotSharedError(
                "an operand has a number from data, for which each trace makes another symbol"
            )
        table.tried.add(node)
        flags = [isinstance(x, torch.Tensor) and x.requires_grad for x in operands]
        request = _Request(key, str(node.args[1]), body, tuple(zip(plain, flags, strict=True)))
        raise RestartTraceError(partial(_make, table, request))
    if isinstance(region, NotSharedError):
        raise region
    return region


def _has_unbacked_symbol(value: object) -> bool:
    """Whether a number, or a size of a tensor, comes from data."""
    return isinstance(value, (torch.Tensor, torch.SymInt, torch.SymFloat)) and bool(
        free_unbacked_symbols(value)
    )


@dataclass(frozen=True, slots=True)
class _Request:
    """A body to trace: its key in the table, its name, and for each operand an example and whether it requires grad."""

    key: Hashable
    name: str
    body: GraphModule
    operands: tuple[tuple[Any, bool], ...]
    grad_mode: bool = field(default_factory=torch.is_grad_enabled)


def _plain(engine: Engine, operand: object) -> Any:
    """Return the value under a functional tensor; a number as it is."""
    if not isinstance(operand, torch.Tensor):
        return operand
    if not engine.is_functional(operand):
        raise NotSharedError("an operand is no plain tensor")
    return current_value(engine, operand)


def _make(table: RegionTable, request: _Request, captured: Captured) -> Captured:
    """Trace a body on new fakes, and enter the region, or the reason against it, into ``table``."""
    try:
        fakes = [_fake_like(captured, value, requires_grad=flag) for value, flag in request.operands]
        with torch.set_grad_enabled(request.grad_mode):
            traced = table.trace_body(table, request.body, fakes)
        # Counted after the trace, which may have made the regions that this one calls: names must differ.
        number = sum(isinstance(region, Region) for region in table.regions.values())
        table.regions[request.key] = make_region(table, f"{request.name}_{number}", traced)
    except (NotSharedError, FunctionalizeError) as error:
        table.regions[request.key] = NotSharedError(str(error), always=True)
    return captured


def _fake_like(captured: Captured, value: Any, *, requires_grad: bool) -> Any:
    """Return a new fake with the metadata of ``value``; a number as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    with captured.fake_mode, torch.no_grad():
        fake = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return fake.requires_grad_(requires_grad)


class _Call:
    """One call of a region during a trace."""

    def __init__(
        self, table: RegionTable, tracer: AtenTracer, engine: Engine, region: Region, node: Node
    ) -> None:
        self.table = table
        self.tracer = tracer
        self.engine = engine
        self.region = region
        self.node = node
        self._operand_nodes: list[Any] = []
        self._result_nodes: list[Any] = []

    def run(self, operands: Sequence[Any]) -> Any:
        """Record the call, write new values to changed operands, and return the results in their structure."""
        info = self.region.traced.info
        if self.region.backward is None:
            with torch.no_grad():
                flat = self.record_forward(operands)
        else:
            given = [
                operand.detach() if index in info.cut and operand.requires_grad else operand
                for index, operand in enumerate(operands)
            ]
            flat = list(_RegionFunction.apply(self, *given))
        for position, index in enumerate(info.mutated):
            self._write(operands[index], flat[position], info.inputs[index].version_bumps)
        return self.region.traced.unflatten([*operands], flat)

    def _write(self, operand: torch.Tensor, value: torch.Tensor, bumps: int) -> None:
        """Give an operand the value that the body has written to the operand."""
        core = self.engine.core
        replace_value(core(operand), current_value(self.engine, value))
        if bumps:
            torch_compat.unsafe_set_version_counter((operand,), (operand._version + bumps,))

    def record_forward(self, operands: Sequence[Any]) -> list[Any]:
        """Add the node of the forward, and return functional tensors for the flat outputs."""
        traced = self.region.traced
        values = [_plain(self.engine, operand) for operand in operands]
        values += [values[index].shape[dim] for index, dim in traced.symbols]
        self._operand_nodes = [self._node_of(value) for value in values]
        if self.table.is_automatic(self.node):
            added = added_inputs(self.region.forward.graph)
            if any(is_sum_of_products(self._operand_nodes[position]) for position in added):
                raise NotSharedError("an operand is a matrix product that the region adds to another value")
        name = self.region.name
        prefix = "partitioned_fw_" if self.region.backward is not None else ""
        results = self._add(self.region.forward, f"{prefix}{name}", self._operand_nodes)
        self._result_nodes = [self._node_of(value) for value in results]
        return [self._wrap(value) for value in results[: traced.info.output_count]]

    def _wrap(self, value: object) -> Any:
        return self.engine.wrap(value) if isinstance(value, torch.Tensor) else value

    def record_backward(self, tangent: torch.Tensor) -> list[torch.Tensor | None]:
        """Add the node of the backward, and return the gradient of each operand.

        Raises:
            RestartTraceError: if the gradient has another layout than that for which the backward was traced.
        """
        region, info = self.region, self.region.traced.info
        assert region.backward is not None
        assert region.tangent is not None
        value = current_value(self.engine, tangent)
        expected, given = _layout(region.tangent), _layout(value)
        if expected != given:
            self._restart_in_line("its gradient has another layout than the gradients of the other calls")
        place = len(region.saved)
        if (
            self.table.is_automatic(self.node)
            and place in added_inputs(region.backward.graph)
            and is_sum_of_products(self._node_of(value))
        ):
            self._restart_in_line("its gradient is a matrix product that the region adds to another value")
        saved = [
            self._operand_nodes[-1 - place] if place < 0 else self._result_nodes[place]
            for place in region.saved
        ]
        name = f"partitioned_bw_{region.name}"
        results = self._add(region.backward, name, [*saved, self._node_of(value)])
        gradients: list[torch.Tensor | None] = [None] * len(info.inputs)
        for index, gradient in zip(info.grad_inputs, results, strict=True):
            gradients[index] = self._wrap(gradient)
        return gradients

    def _restart_in_line(self, why: str) -> None:
        """Restart the trace with this call traced in line."""

        def change(captured: Captured) -> Captured:
            self.table.refuse(self.node, NotSharedError(why))
            return captured

        raise RestartTraceError(change)

    def _node_of(self, value: object) -> Any:
        """Return the node that computes a plain tensor or a symbolic number; a constant as itself."""
        proxy = self.tracer.unwrap_proxy(value)
        return proxy.node if isinstance(proxy, Proxy) else self.tracer.create_arg(proxy)

    def _add(self, module: GraphModule, name: str, operands: Sequence[Any]) -> list[Any]:
        """Add a node that calls ``module``. Return new fakes for the results, known to the tracer."""
        tracer = self.tracer
        call = tracer.add_call(INVOKE, (tracer.add_attribute(name, module), name, *operands), {})
        outputs: Any = module.graph.output_node().args[0]
        likes = [None if output is None else output.meta["val"] for output in outputs]
        with disable_proxy_modes_tracing(), torch_compat.disable_functional_mode(), on_values():
            fakes = [None if like is None else _new_value(like) for like in likes]
        call.meta["val"] = tuple(fakes)
        for index, fake in enumerate(fakes):
            if fake is not None:
                item = tracer.add_item(call, index)
                item.meta["val"] = fake
                track(tracer, fake, item)
        return fakes


def _new_value(like: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)


def _layout(value: torch.Tensor) -> tuple[object, ...]:
    """Return dtype, size and strides. Sizes are text, because comparing symbols would add a guard."""
    return value.dtype, value.device, *map(str, (*value.shape, *value.stride()))


class _RegionFunction(torch.autograd.Function):
    """The autograd node of a call. It saves the operands and results that eager saves, so eager's checks hold."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *operands: Any) -> tuple[Any, ...]:
        """Record the forward."""
        traced = call.region.traced
        flat = call.record_forward(operands)
        ctx.call = call
        ctx.set_materialize_grads(False)
        trained = set(traced.info.differentiable)
        constant = [x for i, x in enumerate(flat) if i not in trained and isinstance(x, torch.Tensor)]
        ctx.mark_non_differentiable(*constant)
        ctx.save_for_backward(
            *(operands[index] for index in traced.saves), *(flat[index] for index in traced.saved_results)
        )
        return tuple(flat)

    @staticmethod
    def backward(ctx: Any, *tangents: torch.Tensor | None) -> tuple[Any, ...]:
        """Record the backward. Only the one differentiable result has a gradient."""
        _ = ctx.saved_tensors  # raises if the program has changed one in place
        (tangent,) = (x for x in tangents if x is not None)
        return None, *ctx.call.record_backward(tangent)
