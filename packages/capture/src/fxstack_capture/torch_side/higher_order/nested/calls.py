"""One call of an operator during recording, from the functions of the program to the node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx

from fxstack_capture.breaks import GraphBreak, graph_break
from fxstack_capture.torch_compat import pytree
from fxstack_capture.torch_side.fakes.faker import with_history
from fxstack_capture.torch_side.higher_order import subgraphs
from fxstack_capture.torch_side.higher_order.nested import derivations
from fxstack_capture.torch_side.higher_order.nested.bodies import Written, covers, storage_of
from fxstack_capture.torch_side.higher_order.nested.lifting import Lifting
from fxstack_capture.torch_side.higher_order.nested.results import tensor_of
from fxstack_capture.torch_side.higher_order.subgraphs import Subgraph
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.state import Args, Kwargs

Tensors = list[torch.Tensor]


class GraphsOfCall:
    """One call of an operator during recording: its traced functions, their free nodes, and its operands."""

    def __init__(
        self, tracer: TracerProtocol, operator: Any, sized: Tensors | None = None, *, below: bool = False
    ) -> None:
        """Begin a call. The symbolic sizes of ``sized`` become free nodes, because derivatives save such sizes.

        ``below``: the call is below all layers of ``torch.func``.
        """
        if tracer.transforms.inside and not below:
            raise graph_break("unsupported-call", f"{operator} inside of a torch.func transform")
        lifting = tracer.transforms.lifting
        self.lifting: Lifting | None = None if lifting is None else lifting.claim()
        """The wrapped tensors that the functions use, if layers of ``torch.func`` are active around the call."""
        self.tracer = tracer
        self.operator = operator
        self.sizes = [tracer.builder.argument(size, []) for size in _symbols(sized or ())]
        self.mark = tracer.builder.mark()
        """The last node before the traced functions, whose nodes are moved out of the outer graph."""
        self.traced: list[Subgraph] = []

    def trace(
        self,
        fn: Callable[..., Any],
        likes: Sequence[torch.Tensor],
        nested: pytree.TreeSpec | None = None,
        *,
        apart: bool = True,
        arrange: Callable[[Tensors], Sequence[Any]] | None = None,
        free_form: bool = False,
    ) -> Subgraph:
        """Trace a function on new fakes with the metadata of ``likes`` (see ``subgraphs.trace``).

        ``free_form``: the function may return numbers and shared memory, and may write to outside tensors.
        """
        inputs = [subgraphs.fake_of(self.tracer, like) for like in likes]
        as_tensor = partial(tensor_of, self.tracer) if free_form else None
        subgraph = subgraphs.trace(
            self.tracer, fn, inputs, nested, apart=apart, arrange=arrange, as_tensor=as_tensor
        )
        self.traced.append(subgraph)
        return subgraph

    def trace_below(self, fn: Callable[..., Any], values: Sequence[Any], *, gradient: bool) -> Subgraph:
        """Really call a function that layers of ``torch.func`` have made (see ``subgraphs.trace_below_layers``)."""
        subgraph = subgraphs.trace_below_layers(self.tracer, fn, values, gradient=gradient)
        self.traced.append(subgraph)
        return subgraph

    def modules(self) -> tuple[list[Any], tuple[fx.Node, ...]]:
        """Return a module for each function. All modules take the same free nodes after their own inputs."""
        free = self.free
        cut = [subgraphs.cut_out(self.tracer, subgraph, free) for subgraph in self.traced]
        name = self.operator.name()
        return self.install([(f"{name}_graph", module) for module in cut]), free

    @property
    def free(self) -> tuple[fx.Node, ...]:
        """The nodes of the outer graph that the functions use, and the sizes of the call."""
        return tuple(
            dict.fromkeys((*self.sizes, *(node for subgraph in self.traced for node in subgraph.free)))
        )

    def install(self, modules: Sequence[tuple[str, fx.GraphModule]]) -> list[Any]:
        """Move the functions out of the outer graph. ``modules``: the prefix of each name, and the module.

        Return their nodes, or the modules themselves below layers of ``torch.func``.
        """
        builder = self.tracer.builder
        builder.roll_back(self.mark)
        if self.lifting is not None:
            return [module for _, module in modules]
        return [builder.module(name, module) for name, module in modules]

    def operands(self, tensors: Sequence[Any]) -> list[fx.Node]:
        """Return the graph nodes of tensors and numbers, for the arguments of the operator's node."""
        return [self.tracer.builder.argument(value, []) for value in tensors]

    def write(self, node_args: Args, results: Tensors, spec: pytree.TreeSpec) -> Any:
        """Add the node of the operator, and return the results in the structure of the function's results."""
        return subgraphs.unflatten(self.tracer, self.add(node_args, results), spec)

    def add(self, node_args: Args, results: Tensors) -> Tensors:
        """Add the node of the operator, whose results are the fakes ``results``. Return the results.

        Under layers of ``torch.func``, the layers call the operator, and wrap the results.
        """
        if self.lifting is not None:
            args = fx.map_arg(node_args, self.lifting.value_of)
            self.lifting.end()
            call = partial(derivations.apply, partial(self.lifting.record, self.tracer), self.operator, args)
            with self.tracer.geometry.env.scalar_outputs_allowed():
                return list(self.tracer.transforms.run(call, (), {"gradients": torch.is_grad_enabled()}))
        builder = self.tracer.builder
        node = builder.add("call_function", self.operator, node_args, {})
        self.tracer.annotate(node)
        builder.bind(tuple(results), node)
        self.tracer.all_bound()
        return list(results)

    def find_writes(self, nodes: Sequence[fx.Node], own: Sequence[torch.Tensor]) -> list[Written]:
        """Return what the functions write to among the values of ``nodes``, outer nodes.

        Break the graph if a function writes to a tensor of ``own``, which the loop carries, or if no tensor covers
        the memory.
        """
        lines = {storage: line for subgraph in self.traced for storage, line in subgraph.writes.items()}
        tensors = {n: n.meta["val"] for n in nodes if isinstance(n.meta["val"], torch.Tensor)}
        written = []
        for storage, line in lines.items():
            group = {n: x for n, x in tensors.items() if storage_of(x) == storage}
            if any(storage_of(x) == storage for x in own):
                raise self.refuse(f"whose function writes to a value that the loop carries ({line})")
            if not group:
                continue  # memory of the function
            base = next((n for n, x in group.items() if covers(x, group.values())), None)
            if base is None:
                raise self.refuse(
                    f"whose function writes to memory that several of its tensors share ({line})"
                )
            if self.lifting is not None:
                raise self.refuse(f"whose function writes to a tensor under torch.func ({line})")
            written.append(Written(tensors[base], base, line))
        return written

    def write_back(self, written: Sequence[Written], values: Tensors) -> None:
        """Record the writes of the functions to outer tensors. ``values``: the tensors after the call."""
        for each, value in zip(written, values, strict=True):
            # All results of an operator require grad. The traced function has shown whether this one does.
            has_history = each.base.requires_grad or not value.requires_grad
            new = value if has_history else self.tracer.record(torch.Tensor.detach, (value,), {})
            self.tracer.record(torch.Tensor.copy_, (each.base, new), {})

    def current_values(self, nodes: Sequence[fx.Node], written: Sequence[Written]) -> tuple[fx.Node, ...]:
        """Return ``nodes``, with copies in place of the tensors that the outer graph overwrites after the call."""
        # The derivative saves operands.
        if not torch.is_grad_enabled():
            return tuple(nodes)
        copies = {
            each.node: self.tracer.builder.node_of(self.tracer.record(torch.clone, (each.base,), {}))
            for each in written
        }
        return tuple(copies.get(node, node) for node in nodes)

    def make_results(self, likes: Sequence[torch.Tensor], *, gradient: bool) -> Tensors:
        """Return new fakes with the metadata of ``likes``. ``gradient``: floats require grad in grad mode."""
        with self.tracer.unrecorded(), self.tracer.mode, torch.no_grad():
            fakes = [torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device) for x in likes]
        if not (gradient and torch.is_grad_enabled()):
            return list(fakes)
        return [with_history(x) if x.dtype.is_floating_point or x.dtype.is_complex else x for x in fakes]

    def refuse(self, why: str) -> GraphBreak:
        """Return a graph break with the reason ``why``. Plain Python then runs torch's own operator."""
        return refusal(self.operator, why)


def _symbols(tensors: Sequence[torch.Tensor]) -> list[torch.SymInt]:
    """Return the symbolic sizes of ``tensors`` that are single symbols, once each."""
    sizes = [size for x in tensors if isinstance(x, torch.Tensor) for size in x.size()]
    symbols = [s for s in sizes if isinstance(s, torch.SymInt) and s.node.expr.is_symbol]
    return list({size.node.expr: size for size in symbols}.values())


def any_gradient(operands: Sequence[Any], free: Sequence[fx.Node]) -> bool:
    """Return whether an operand or the value of a free node requires grad."""
    values = (*operands, *(node.meta["val"] for node in free))
    return any(isinstance(x, torch.Tensor) and x.requires_grad for x in values)


def refusal(operator: Any, why: str) -> GraphBreak:
    """Return a graph break at a call of ``operator``, with the reason ``why``."""
    return graph_break("operator-function", f"{operator.name()} {why}")


def bind_arguments(args: Args, kwargs: Kwargs, names: str) -> tuple[Any, ...]:
    """Return the arguments in the order of ``names``, which blanks separate. A missing argument is an empty tuple."""
    by_name = dict(zip(names.split(), args, strict=False)) | kwargs
    return tuple(by_name.get(name, ()) for name in names.split())
