"""Gradients between results of one graph, for programs that observe them.

If a result is computed from other results (``OutputEdge``), it gets an autograd node of its own, in front of
the compiled graph's node. This edge node has edges to the other results as well. Usually the edge node only
passes its gradient on to the graph's node, and one compiled backward computes everything. A program may
observe the gradient of one of the other results, by a hook, ``retain_grad`` or ``autograd.grad(loss,
logits)``. Then the captured graph runs again in eager (``replay``), cut at each such result, and autograd
differentiates the pieces. So every result gets eager's gradient, and a change of a gradient by a hook has its
effect.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from types import FrameType
from typing import Any
from weakref import ref

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.fx import Graph, GraphModule, Node

from fxstack_functionalize import torch_compat
from fxstack_functionalize.errors import SAVED_ARE_FREED, hidden_gradient
from fxstack_functionalize.runtime.backward.nodes import (
    HistoryNode,
    Traceable,
    give_history,
    register_hooks,
    set_traceable,
)
from fxstack_functionalize.runtime.backward.output_edges import OutputEdge, OutputEdges, Refusals
from fxstack_functionalize.runtime.backward.replay import Again, Kept, Replay, make_alias
from fxstack_functionalize.runtime.backward.saved import KEEPS_GRAPH, Held
from fxstack_functionalize.torch_compat import engine_run_backward as _engine_run_backward
from fxstack_functionalize.torch_compat import pytree
from fxstack_functionalize.trace import Shell

# Limits: the captured graph cannot run again if it changes its inputs, has side effects or draws random
# numbers on a GPU. Gradients between results then raise an error with this reason. If the program drops a
# hooked view before the backward, the hook does not affect gradients of results that were computed from the
# view.

_task: Callable[[], int] = torch_compat.current_graph_task_id
_executes: Callable[[Any], bool] = torch_compat.will_engine_execute_node

_MARK = torch.empty(0, requires_grad=True)
"""A leaf without use. If its node does not execute, autograd computes gradients of certain inputs only."""
_MARK_NODE = get_gradient_edge(_MARK).node


class EdgeCall:
    """The data of one call that its backward may need."""

    __slots__ = ("cuts", "edges", "held", "hooked", "kept", "origins", "random_state", "run", "task")

    def __init__(self, edges: EdgeGradients, args: Sequence[Any]) -> None:
        self.edges = edges
        self.kept: Kept | None = edges.replay.keep(args)
        """The inputs, until a backward frees what the call has saved."""
        self.held: Held | None = None
        """The saved tensors; None if autograd keeps them."""
        # If the graph runs again, it must draw the same numbers.
        self.random_state = torch.get_rng_state() if edges.draws else None
        # Weak references: the node of an origin holds this call.
        self.origins: dict[int, ref[torch.Tensor]] = {}
        """Number of a user output -> the output, for outputs from which other outputs are computed."""
        self.hooked = False
        self.task: int | None = None
        """The autograd run in which the graph was cut into pieces."""
        self.run: Again | None = None
        """The run of the graph in pieces."""
        self.cuts: dict[int, torch.Tensor] = {}
        """Number of a cut result -> the tensor from which the rest of the graph was computed."""

    def release(self) -> None:
        """Free the run in pieces, and the inputs unless autograd keeps the graph. The generated backward calls it."""
        self.run = None
        self.cuts = {}
        if not KEEPS_GRAPH() and (self.held is None or self.held.spent):
            self.kept = None

    def note_hook(self, tensor: object) -> None:
        """Record that the program registered a hook on ``tensor``, if it is an origin of this call."""
        self.hooked = self.hooked or any(origin() is tensor for origin in self.origins.values())

    @property
    def is_in_pieces(self) -> bool:
        """Whether the present run of autograd has run the graph in pieces."""
        return self.run is not None and self.task == _task()

    def is_watched(self) -> bool:
        """Whether the program may observe the gradient of an origin in the present run of autograd."""
        if self.hooked or self.task == _task():
            return True
        alive = [origin for reference in self.origins.values() if (origin := reference()) is not None]
        if not alive:
            return False
        observed = any(origin.retains_grad or origin._backward_hooks for origin in alive)
        return observed or _asked_for(alive, marked=bool(self.edges.marks))


def _asked_for(origins: Sequence[torch.Tensor], *, marked: bool) -> bool:
    """Whether the program asked the present run of autograd for the gradient of one of ``origins``.

    The frame of torch's ``_engine_run_backward`` holds the requested inputs. Backwards on GPUs run in threads
    without this frame. In these threads, return True if the run computes gradients of certain inputs only, or
    if there is no mark.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is _engine_run_backward.__code__:
            inputs = frame.f_locals["args"][3]
            return any(
                isinstance(item, GradientEdge) or any(item is origin for origin in origins) for item in inputs
            )
        frame = frame.f_back
    return not (marked and _executes(_MARK_NODE))


class EdgeGradients:
    """The edges between the results of one graph, with the replay that finds the gradients on them."""

    def __init__(self, shell: Shell, refusals: Refusals, edges: OutputEdges, replay: Replay) -> None:
        self.draws = refusals.draws
        self._refusals = refusals
        self.replay = replay
        self._edges = edges
        examples = [spec.fake for spec in shell.captured.inputs if isinstance(spec.fake, torch.Tensor)]
        self.marks = () if all(t.device.type == "cpu" for t in examples) else (_MARK,)
        """Further sources of the nodes of graphs on GPUs, for ``_asked_for``."""
        self._graph = shell.captured.graph_module

    def gradients_of_edge(self, edge: OutputEdge, ctx: Any, grads: Sequence[Any]) -> Sequence[Any]:
        """Return the gradients that the node of ``edge`` passes on: for its own result, the origins and the marks.

        Autograd calls this function when the result has a gradient, before the node of the graph runs.
        """
        (grad,) = grads
        of_origins: Sequence[Any] = [None] * len(edge.origins)
        if grad is not None and ctx.edge_call.is_watched():
            of_origins = self._between(ctx.edge_call, edge, grad)
        return (grad, *of_origins, *(None for _ in self.marks))

    def _between(self, call: EdgeCall, edge: OutputEdge, grad: torch.Tensor) -> Sequence[Any]:
        """Return the gradients of the origins of ``edge``, given the gradient ``grad`` of its result.

        Count direct paths only.

        Raises:
            RuntimeError: if the graph cannot run again, or its inputs were changed in place.
        """
        if not call.is_in_pieces:
            call.task = _task()
            call.run = self._run(call)
        assert call.run is not None
        cuts = [origin for origin in edge.origins if origin in call.cuts]
        of_cuts = torch.autograd.grad(
            [self.replay.flat(call.run, edge.position)],
            [call.cuts[origin] for origin in cuts],
            [grad],
            retain_graph=True,
            create_graph=torch.is_grad_enabled(),
            allow_unused=True,
        )
        gradients = dict(zip(cuts, of_cuts, strict=True))
        return [gradients.get(origin) for origin in edge.origins]

    def gradients(self, call: EdgeCall, grads: Sequence[Any]) -> tuple[Any, ...]:
        """Return the gradients of all inputs. The generated backward calls it when the graph runs in pieces."""
        assert call.run is not None
        of_inputs = self.replay.differentiate(call.run, grads)
        call.release()
        return of_inputs

    def _run(self, call: EdgeCall) -> Again:
        """Run the graph in pieces: cut at the results from which others are computed."""
        if self._refusals.between is not None:
            raise RuntimeError(hidden_gradient(self._refusals.between))
        if call.kept is None:
            raise RuntimeError(SAVED_ARE_FREED)
        with torch.random.fork_rng(devices=[], enabled=call.random_state is not None):
            if call.random_state is not None:
                torch.set_rng_state(call.random_state)
            run = self.replay.run(call.kept, (), _Cutter(self._cut_graph, call, self._edges.in_state))
        return replace(run, explain=hidden_gradient)

    @cached_property
    def _cut_graph(self) -> GraphModule:
        return _with_cuts(self._graph, self._edges.cuts)


class _Cutter:
    """Runs the graph. ``_cut_at`` replaces origins where the rest of the graph uses them."""

    def __init__(
        self, graph: GraphModule, call: EdgeCall, in_state: Callable[[Callable[[], Any]], Any]
    ) -> None:
        self._graph = graph
        self.call = call
        self._in_state = in_state
        self.has_history = torch.is_grad_enabled()

    def __call__(self, owned: Mapping[str, Any], args: Sequence[Any]) -> Any:
        with torch_compat.reparametrize_module(self._graph, owned):
            return self._in_state(lambda: self._graph(self, *args))


def _cut_at(cutter: _Cutter, origin: int, value: torch.Tensor) -> torch.Tensor:
    """Return the tensor that the rest of the graph uses in place of ``value``, the result number ``origin``."""
    if not value.requires_grad:
        return value
    result = cutter.call.origins[origin]()
    alias = make_alias(value if result is None else result, has_history=cutter.has_history)
    cutter.call.cuts[origin] = alias
    return alias


def _with_cuts(module: GraphModule, cuts: Sequence[tuple[int, Node]]) -> GraphModule:
    """Return ``module`` with a ``_Cutter`` as an extra first argument.

    The cutter replaces origins for their later readers.
    """
    graph = Graph()
    cutter = graph.placeholder("cutter")
    copies: dict[Any, Any] = {}
    output = graph.graph_copy(module.graph, copies)
    results = pytree.tree_leaves(module.graph.output_node().args[0])
    for origin, last_write in cuts:
        node = copies[results[origin]]
        with graph.inserting_after(copies[last_write]):
            cut = graph.call_function(_cut_at, (cutter, origin, node))
        following = last_write.next
        while following.op != "output":
            copies[following].replace_input_with(node, cut)
            following = following.next
    graph.output(output)
    return GraphModule(module, graph)


def is_watched(node: Any) -> bool:
    """Whether the program may observe gradients between the results of the graph of ``node``."""
    call: EdgeCall | None = getattr(node, "edge_call", None)
    return call is not None and call.is_watched()


class _EdgeNode(HistoryNode):
    """The node of a result that is computed from other results."""


def _traceable(node: Any, _missing: Sequence[bool]) -> Traceable | None:
    """Return the traceable backward of an edge node, which passes the gradient to the result.

    None if the call is watched: then compiled autograd runs the node's own backward.
    """
    if is_watched(node):
        return None
    no_gradients = (None,) * node.sources
    return lambda _ctx, _saved, grad: (None, None, grad, *no_gradients)


set_traceable(_EdgeNode, _traceable, lambda n: (n._autograd_function_id, n.sources, int(is_watched(n))))


def add_edges(result: torch.Tensor, edge: OutputEdge, *origins: torch.Tensor) -> None:
    """Give eager's history to a flat output that is computed from ``origins``. The generated wrapper calls this."""
    call = _find_call(result)
    if call is None:
        return
    call.origins.update(zip(edge.origins, map(ref, origins), strict=True))
    sources = [*origins, *call.edges.marks]
    gradients = partial(call.edges.gradients_of_edge, edge)
    give_history(
        _EdgeNode, [result], sources, {"edge_call": call, "gradients": gradients, "sources": len(sources)}
    )


def watch_hooks(function: type[torch.autograd.Function]) -> None:
    """Make the nodes of ``function`` record hooks on their tensors and on themselves.

    A hook on a result runs only if this result has a gradient (``register_hooks``). If the graph has output-to-output
    edges, the hook is also noted in ``edge_call``, because it observes a gradient between results.
    """
    node: Any = function._backward_cls
    node._register_hook_dict = _register_result_hooks
    for name in ("register_hook", "register_prehook"):
        setattr(node, name, _noting(getattr(torch_compat.FunctionBase, name)))


def _register_result_hooks(node: Any, result: torch.Tensor) -> None:
    """Replace ``_register_hook_dict`` of a node. Autograd calls it when ``result`` gets its first tensor hook."""
    call: EdgeCall | None = getattr(node, "edge_call", None)
    if call is not None:
        call.note_hook(result)
    register_hooks(node, result)


def _noting(register: Callable[[Any, object], Any]) -> Callable[[Any, object], Any]:
    """Return a function that notes the hook in ``edge_call``, and then calls ``register``.

    ``register``: ``register_hook`` or ``register_prehook`` of a node.
    """

    def note_and_register(node: Any, hook: object) -> Any:
        """Note in ``edge_call`` that the program watches this call, then register the hook."""
        if getattr(node, "edge_call", None) is not None:
            node.edge_call.hooked = True
        return register(node, hook)

    return note_and_register


watch_hooks(_EdgeNode)


def _find_call(tensor: torch.Tensor) -> EdgeCall | None:
    """Return the call whose node is ``tensor.grad_fn`` or, if ``tensor`` is a copy, the next node behind it;
    else None.
    """
    node = tensor.grad_fn
    if node is None:
        return None
    for candidate in (node, *(following for following, _ in node.next_functions)):
        call = getattr(candidate, "edge_call", None)
        if isinstance(call, EdgeCall):
            return call
    return None
