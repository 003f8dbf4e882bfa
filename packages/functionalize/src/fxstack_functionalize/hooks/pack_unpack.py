"""Trace one pair of pack and unpack hooks for one saved tensor.

``pack`` may return any nest of tensors, symbolic sizes and constants. Its tensors and symbols become values
of the forward. The nest and the constants are known when ``unpack`` is traced, and cost nothing at run time.
Both hooks are traced as eager calls them: without grad mode, on a tensor with the size, dtype, device and
strides of the saved tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node

from fxstack_functionalize import torch_compat
from fxstack_functionalize.hooks.identity import NotTraceableError
from fxstack_functionalize.torch_compat import FakeTensorMode, pytree
from fxstack_functionalize.tracer.aten_tracer import AtenTracer
from fxstack_functionalize.tracer.engine import Engine
from fxstack_functionalize.tracer.inputs import Captured, CapturedInput
from fxstack_functionalize.tracer.tensor_metadata import dense_like
from fxstack_functionalize.tracing.finalize import remove_dead_code
from fxstack_functionalize.tracing.session import Session
from fxstack_interchange import InputKind, StageGraph
from fxstack_interchange.format.metadata import recompute_tag
from fxstack_interchange.modules import make_graph_module

Decompositions = Mapping[Any, Callable[..., Any]]

DYNAMIC = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass(frozen=True, slots=True)
class TracedHook:
    """The ATen graph of one hook. ``leaves``: the leaves of its result, a node for each tensor or symbol.

    ``results``: only the nodes.
    """

    graph: Graph
    results: tuple[Node, ...]
    leaves: tuple[Any, ...]
    spec: pytree.TreeSpec
    """The structure in which ``leaves`` form the hook's result."""

    def splice(self, into: Graph, inputs: Sequence[Node], recompute: str | None = None) -> list[Node]:
        """Copy the hook's nodes into another graph at its insertion point.

        Return the copies of ``results``. ``recompute``: the tag of the copies, for example ``must_recompute``.
        """
        env: dict[Node, Node] = dict(zip(self.graph.find_nodes(op="placeholder"), inputs, strict=True))
        for node in self.graph.nodes:
            if node not in env and node.op != "output":
                env[node] = into.node_copy(node, env.__getitem__)
                if recompute is not None:
                    env[node].meta["recompute"] = recompute_tag(recompute)
        return [env[node] for node in self.results]


@dataclass(frozen=True, slots=True)
class HookPair:
    """A pair of hooks, with the fake mode and decompositions that trace them."""

    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]
    fake_mode: FakeTensorMode
    table: Decompositions
    """The decompositions with which the hooks are traced, by operator."""

    def trace_pack(self, saved: torch.Tensor, parameters: frozenset[int]) -> TracedHook:
        """Trace ``pack`` on an example of a saved tensor. ``parameters``: from ``parameter_memory``.

        Raises:
            NotTraceableError: if ``pack`` raises, changes the tensor, reads its data or draws random numbers.
        """
        strided = saved.layout is torch.strided
        is_parameter = strided and saved.untyped_storage()._cdata in parameters

        def call(inputs: Sequence[Any]) -> Any:
            inputs[0]._is_param = is_parameter
            return self.pack(inputs[0])

        return self._trace(call, [saved])

    def trace_unpack(self, packed: TracedHook, saved: torch.Tensor) -> TracedHook:
        """Trace ``unpack`` on the result of ``pack``. The unpacked tensor gets the strides of ``saved``.

        Raises:
            NotTraceableError: as for ``pack``, and if the result is no tensor with the size, dtype and device
                of ``saved``.
        """
        examples = [node.meta["val"] for node in packed.results]

        def call(inputs: Sequence[Any]) -> Any:
            """Call the unpack hook with the packed value, rebuilt from ``inputs``.

            Check the tensor that the hook returns.
            """
            remaining = iter(inputs)
            leaves = [next(remaining) if isinstance(x, Node) else x for x in packed.leaves]
            return _check_unpacked(self.unpack(pytree.tree_unflatten(leaves, packed.spec)), saved)

        with torch_compat.DisableAutocast():  # eager's backward runs outside the forward's autocast
            return self._trace(call, examples)

    def _trace(self, call: Callable[[Sequence[Any]], Any], examples: Sequence[Any]) -> TracedHook:
        """Record ``call`` on functional tensors made from ``examples``. Any exception means that the hook runs in eager."""
        names = [f"packed_{number}" for number in range(len(examples))]
        inputs = tuple(
            CapturedInput(name, InputKind.USER_INPUT, _detach(value))
            for name, value in zip(names, examples, strict=True)
        )
        captured = Captured(make_graph_module({}, Graph()), inputs, {}, self.fake_mode)
        session = Session(captured, Engine(), AtenTracer(), self.table)
        try:
            with torch.no_grad(), session.recording():
                result = call([traced.argument for traced in session.inputs])
                return _finish_trace(session, result)
        except NotTraceableError:
            raise
        except Exception as error:
            raise NotTraceableError(f"{type(error).__name__}: {error}") from error


def parameter_memory(stage: StageGraph) -> frozenset[int]:
    """Return the storages of the graph's parameters.

    A hook sees each tensor on such a storage as a parameter, as in eager.
    """
    names = {spec.name for spec in stage.signature.inputs_of(InputKind.PARAMETER)}
    return frozenset(
        node.meta["val"].untyped_storage()._cdata
        for node in stage.graph_module.graph.find_nodes(op="placeholder")
        if node.name in names
    )


def _detach(value: object) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def _finish_trace(session: Session, result: object) -> TracedHook:
    """Close the hook's graph at its dynamic results. Raise NotTraceableError if the hook changed a tensor."""
    leaves, spec = pytree.tree_flatten(result)
    nodes = [_node_of_leaf(session, leaf) for leaf in leaves]
    for traced in session.inputs:
        if traced.inner is not None:
            torch_compat.functional_sync(traced.argument)
            if torch_compat.functionalize_has_data_mutation(traced.argument):
                raise NotTraceableError("it changes a tensor in place")
    results = tuple(node for node in nodes if isinstance(node, Node))
    graph = session.tracer.graph
    graph.output(results)
    remove_dead_code(graph, root=session.tracer.root)
    for node in graph.nodes:
        _check_node(node)
        node.meta = {"val": node.meta["val"]} if "val" in node.meta else {}
    return TracedHook(graph, results, tuple(nodes), spec)


def _node_of_leaf(session: Session, leaf: object) -> Any:
    """Return the node that computes a leaf of the packed value.

    A leaf that is neither tensor nor symbol is returned as it is. Raise NotTraceableError for a tensor from outside
    of the hook.
    """
    if isinstance(leaf, torch.Tensor):
        if not session.engine.is_functional(leaf):
            raise NotTraceableError("it returns a tensor that is not made from its argument")
        return session.node_of(session.value(leaf))
    return session.node_of(leaf) if isinstance(leaf, DYNAMIC) else leaf


def _check_node(node: Node) -> None:
    """Raise NotTraceableError for a node whose result does not follow from the hook's argument and constants."""
    if node.op == "get_attr":
        raise NotTraceableError("it holds a tensor of its own")
    if node.meta.get("unbacked_bindings"):
        raise NotTraceableError("it makes a number or size from a tensor's data")
    if isinstance(node.target, torch_compat.OpOverload):
        if torch.Tag.nondeterministic_seeded in node.target.tags:
            raise NotTraceableError("it draws random numbers")
        if node.target._schema.is_mutable or not node.target._schema.returns:
            raise NotTraceableError(f"its operator {node.target} has an effect")


def _check_unpacked(value: Any, saved: torch.Tensor) -> torch.Tensor:
    """Check the result of ``unpack``, and give it the strides with which the backward was traced."""
    if not isinstance(value, torch.Tensor):
        raise NotTraceableError(f"unpack returns a {type(value).__name__}, not a tensor")
    for attribute in ("dtype", "device", "layout"):
        actual, expected = getattr(value, attribute), getattr(saved, attribute)
        if actual != expected:
            raise NotTraceableError(f"unpack returns {attribute} {actual}, saved was {expected}")
    if _number_keys(value.shape) != _number_keys(saved.shape):
        raise NotTraceableError(f"unpack returns size {[*value.shape]}, saved was {[*saved.shape]}")
    if _number_keys(value.stride()) == _number_keys(saved.stride()):
        return value
    value = dense_like(saved)(value)
    if _number_keys(value.stride()) != _number_keys(saved.stride()):
        raise NotTraceableError(f"unpack returns strides {value.stride()}, saved were {saved.stride()}")
    return value


def _number_keys(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(v.node.expr if isinstance(v, torch.SymInt) else v for v in values)
