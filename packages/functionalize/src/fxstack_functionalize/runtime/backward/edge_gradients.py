"""Gradients between results of one graph, for programs that observe them.

For each result that is computed from other results (``OutputEdge``) an autograd node stands between the result and
the compiled graph's node, with edges to the other results. Usually this node passes its gradient on, and one
compiled backward does everything. If the program observes the gradient of one of the other results (a hook,
``retain_grad``, ``autograd.grad(loss, logits)``), the captured graph runs again in eager, cut at each such
result, and autograd differentiates the pieces: every result gets eager's gradient, and changes by hooks are
propagated.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, ClassVar
from weakref import ref

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.fx import Graph, GraphModule, Node

from fxstack_functionalize import torch_compat
from fxstack_functionalize.errors import INPUT_CHANGED, SAVED_ARE_FREED, hidden_gradient
from fxstack_functionalize.runtime.backward.double_backward import Alias, picker, versions_of
from fxstack_functionalize.runtime.backward.output_edges import OutputEdge, OutputEdges, owners, plan_links
from fxstack_functionalize.runtime.backward.saved import KEEPS_GRAPH
from fxstack_functionalize.runtime.forward.modes import state_now
from fxstack_functionalize.runtime.plan import TrainingPlan
from fxstack_functionalize.shell import Shell
from fxstack_functionalize.torch_compat import engine_run_backward as _engine_run_backward
from fxstack_functionalize.torch_compat import pytree

# Limits: the captured graph cannot run again if it changes its inputs, has side effects or draws random
# numbers on a GPU. These uses then raise an error that says so. A hook on a view that is dropped before the
# backward is not seen by what was computed from the view.

_task: Callable[[], int] = torch_compat.current_graph_task_id
_executes: Callable[[Any], bool] = torch_compat.will_engine_execute_node
_set_versions = torch_compat.unsafe_set_version_counter

_MARK = torch.empty(0, requires_grad=True)
"""A leaf without use. If its node does not execute, autograd computes gradients of certain inputs only."""
_MARK_NODE = get_gradient_edge(_MARK).node


class Call:
    """The data of one call that its backward may need."""

    __slots__ = ("args", "hooked", "origins", "pieces", "random_state", "task", "versions")

    def __init__(self, args: Sequence[Any], versions: list[int], random_state: torch.Tensor | None) -> None:
        self.args: Sequence[Any] | None = args
        self.versions = versions
        self.random_state = random_state
        self.origins: dict[int, ref[torch.Tensor]] = {}
        """The results from which others are computed, by the number of the user output."""
        self.hooked = False
        self.task: int | None = None
        """The autograd run in which the graph was cut into pieces."""
        self.pieces: Pieces | None = None

    def release(self) -> None:
        """Release the arguments, unless the autograd graph is kept for further gradients."""
        self.pieces = None
        if not KEEPS_GRAPH():
            self.args = None

    def note_hook(self, tensor: object) -> None:
        self.hooked = self.hooked or any(origin() is tensor for origin in self.origins.values())

    def is_watched(self, *, marked: bool) -> bool:
        """Whether the program may observe the gradient of a tap in the present run of autograd."""
        if self.hooked or self.task == _task():
            return True
        alive = [origin for reference in self.origins.values() if (origin := reference()) is not None]
        if not alive:
            return False
        return any(origin.retains_grad or origin._backward_hooks for origin in alive) or _asked_for(
            alive, marked=marked
        )


def _asked_for(origins: Sequence[torch.Tensor], *, marked: bool) -> bool:
    """Whether the present run of autograd was asked for the gradient of one of ``origins``.

    The caller's frame has the answer. Backwards on GPUs run in threads without this frame: there the answer
    is True if the run is restricted to certain inputs, or if there is no mark.
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


class Pieces:
    """One run of the captured graph in eager, cut at its taps (results from which others are computed)."""

    def __init__(self, outputs: Sequence[Any], cuts: Mapping[int, torch.Tensor]) -> None:
        self.outputs = outputs
        """User outputs before the cut."""
        self.cuts = cuts
        """The tensors from which the rest of the graph was computed, by the number of the tap."""
        self.inputs: Sequence[torch.Tensor] = ()
        """Aliases of the inputs that get gradients."""


class EdgeGradients:
    """The links of one graph. ``EdgeGradients.of`` returns None if there are none."""

    plan: TrainingPlan
    """The plan of the compiled graphs; set after compiling."""

    def __init__(self, shell: Shell, links: OutputEdges) -> None:
        self.links = links.all
        self._cuts = links.cuts
        self._owners = owners(shell.info)
        self._wanted = shell.info.wanted
        self._count = len(shell.info.inputs)
        tensors = [at for at, seen in enumerate(shell.info.inputs) if seen.is_tensor]
        self._tensors = picker(tensors)
        examples = [shell.captured.inputs[at].fake for at in tensors]
        self._marks = () if all(t.device.type == "cpu" for t in examples) else (_MARK,)
        self._graph = shell.captured.graph_module
        self._given = len(self._graph.graph.find_nodes(op="placeholder"))
        self._owned = dict(shell.captured.owned)
        self._in_state = state_now()
        self._cut: GraphModule | None = None

    @classmethod
    def of(cls, shell: Shell) -> EdgeGradients | None:
        links = plan_links(shell)
        return None if links is None else cls(shell, links)

    # --- the forward -----------------------------------------------------------------------------

    def remember(self, args: Sequence[Any]) -> Call:
        """Return the data that the backward of this call may need. Call it before the graph runs."""
        state = torch.get_rng_state() if self.plan.draws else None
        return Call(args, versions_of(self._tensors(args)), state)

    def link(self, number: int, result: torch.Tensor, *origins: torch.Tensor) -> None:
        """Give a flat output eager's history, by link ``number``."""
        link = self.links[number]
        call = _call_of(result)
        if call is None:
            return
        call.origins.update(zip(link.origins, map(ref, origins), strict=True))
        version = result._version
        _apply(self, call, link, result, *origins, *self._marks)
        _set_versions([result], [version])

    # --- the backward ----------------------------------------------------------------------------

    def through(self, call: Call, link: OutputEdge, grad: torch.Tensor) -> Sequence[Any]:
        """Return the gradients of the taps of ``link`` for the gradient of its result, by direct paths only.

        Raises:
            RuntimeError: if the graph cannot run again, or its inputs were changed in place.
        """
        if call.task != _task() or call.pieces is None:
            call.task = _task()
            call.pieces = self._run(call)
        pieces = call.pieces
        cuts = [origin for origin in link.origins if origin in pieces.cuts]
        found = torch.autograd.grad(
            [self._flat(pieces, link.position)],
            [pieces.cuts[origin] for origin in cuts],
            [grad],
            retain_graph=True,
            create_graph=torch.is_grad_enabled(),
            allow_unused=True,
        )
        gradients = dict(zip(cuts, found, strict=True))
        return [gradients.get(origin) for origin in link.origins]

    def is_in_pieces(self, call: Call) -> bool:
        return call.pieces is not None and call.task == _task()

    def gradients(self, call: Call, grads: Sequence[Any]) -> tuple[Any, ...]:
        """Return the gradients of all inputs, given those of the flat outputs. Taps have whole gradients."""
        pieces = call.pieces
        assert pieces is not None
        given = {at: grad for at, grad in enumerate(grads) if grad is not None}
        found = torch.autograd.grad(
            [self._flat(pieces, at) for at in given],
            list(pieces.inputs),
            list(given.values()),
            create_graph=torch.is_grad_enabled(),
            allow_unused=True,
        )
        call.release()
        gradients: list[Any] = [None] * self._count
        for index, gradient in zip(self._wanted, found, strict=True):
            gradients[index] = gradient
        return tuple(gradients)

    def _flat(self, pieces: Pieces, position: int) -> torch.Tensor:
        owner = self._owners.get(position)
        if owner is None:
            raise RuntimeError(hidden_gradient("a result shares memory in a way of its own"))
        tensor: torch.Tensor = pieces.outputs[owner.output]
        if not owner.base:
            return tensor
        if tensor._base is None:
            raise RuntimeError(hidden_gradient("a result is a view of what the graph computes"))
        return tensor._base

    def _run(self, call: Call) -> Pieces:
        if self.plan.linking is not None:
            raise RuntimeError(hidden_gradient(self.plan.linking))
        if call.args is None:
            raise RuntimeError(SAVED_ARE_FREED)
        if versions_of(self._tensors(call.args)) != call.versions:
            raise RuntimeError(INPUT_CHANGED)
        again = torch.is_grad_enabled()
        with torch.enable_grad(), _RandomState(call.random_state):
            args = [*call.args]
            for index in self._wanted:
                args[index] = _stand_for(args[index], again=again)
            cutter = _Cutter(call, again=again)
            pieces: Pieces = self._in_state(lambda: self._pieces(cutter, args))
        pieces.inputs = [args[index] for index in self._wanted]
        return pieces

    def _pieces(self, cutter: _Cutter, args: Sequence[Any]) -> Pieces:
        if self._cut is None:
            self._cut = _with_cuts(self._graph, self._cuts)
        owned = {path: args[index] for path, index in self._owned.items()}
        with torch_compat.reparametrize_module(self._cut, owned):
            outputs = self._cut(cutter, *args[: self._given])
        return Pieces(pytree.tree_leaves(outputs), cutter.cuts)


class _Cutter:
    """Replaces taps where the rest of the graph uses them."""

    def __init__(self, call: Call, *, again: bool) -> None:
        self._call = call
        self._again = again
        self.cuts: dict[int, torch.Tensor] = {}

    def __call__(self, origin: int, value: torch.Tensor) -> torch.Tensor:
        if not value.requires_grad:
            return value
        given = self._call.origins[origin]()
        self.cuts[origin] = _stand_for(value if given is None else given, again=self._again)
        return self.cuts[origin]


def _stand_for(tensor: torch.Tensor, *, again: bool) -> torch.Tensor:
    """Return an alias of ``tensor`` that gets a gradient; ``again``: with a history to ``tensor``."""
    return Alias.apply(tensor) if again else tensor.detach().requires_grad_()


def _cut_at(cutter: _Cutter, origin: int, value: torch.Tensor) -> torch.Tensor:
    return cutter(origin, value)


def _with_cuts(module: GraphModule, cuts: Sequence[tuple[int, Node]]) -> GraphModule:
    """Return ``module`` with a further first argument, a ``_Cutter`` that replaces taps for later users."""
    graph = Graph()
    cutter = graph.placeholder("cutter")
    copies: dict[Any, Any] = {}
    output = graph.graph_copy(module.graph, copies)
    results = pytree.tree_leaves(module.graph.output_node().args[0])
    for origin, end in cuts:
        node = copies[results[origin]]
        with graph.inserting_after(copies[end]):
            cut = graph.call_function(_cut_at, (cutter, origin, node))
        following = end.next
        while following.op != "output":
            copies[following].replace_input_with(node, cut)
            following = following.next
    graph.output(output)
    return GraphModule(module, graph)


class _RandomState:
    """Restores the random state of a call, and the program's state afterwards."""

    def __init__(self, state: torch.Tensor | None) -> None:
        self._state = state

    def __enter__(self) -> None:
        if self._state is not None:
            self._before = torch.get_rng_state()
            torch.set_rng_state(self._state)

    def __exit__(self, *_error: object) -> None:
        if self._state is not None:
            torch.set_rng_state(self._before)


# --- autograd's side -----------------------------------------------------------------------------


class _Link(torch.autograd.Function):
    """The identity on a result, in place, with edges to the results from which it is computed."""

    @staticmethod
    def forward(
        ctx: Any, linked: EdgeGradients, call: Call, link: OutputEdge, *tensors: torch.Tensor
    ) -> torch.Tensor:
        """``tensors``: the result, the taps, the mark. All but the first only provide edges."""
        tensor = tensors[0]
        ctx.linked_results, ctx.linked, ctx.link, ctx.marked = (
            linked,
            call,
            link,
            len(tensors) > len(link.origins) + 1,
        )
        ctx.set_materialize_grads(False)
        ctx.mark_dirty(tensor)
        return tensor

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor | None) -> tuple[Any, ...]:
        mark = (None,) if ctx.marked else ()
        if grad is None or not ctx.linked.is_watched(marked=ctx.marked):
            return (None, None, None, grad, *([None] * len(ctx.link.origins)), *mark)
        found = ctx.linked_results.through(ctx.linked, ctx.link, grad)
        return (None, None, None, grad, *found, *mark)


# Function.apply first handles functorch transforms in Python; the wrapper has handled them.
_apply: Callable[..., Any] = super(torch.autograd.Function, _Link).apply


def watch_hooks(function: type[torch.autograd.Function]) -> None:
    """Make the nodes of ``function`` record hooks on their tensors and on themselves."""
    node: Any = function._backward_cls
    for name, method in _HOOKED.items():
        setattr(node, name, method)


class _Noting:
    """Methods of autograd nodes that record hooks."""

    base: ClassVar[Any] = torch_compat.FunctionBase

    def _register_hook_dict(self: Any, tensor: torch.Tensor) -> None:
        self.linked.note_hook(tensor)
        _Noting.base._register_hook_dict(self, tensor)

    def register_hook(self: Any, hook: object) -> Any:
        self.linked.hooked = True
        return _Noting.base.register_hook(self, hook)

    def register_prehook(self: Any, hook: object) -> Any:
        self.linked.hooked = True
        return _Noting.base.register_prehook(self, hook)


_HOOKED = {name: vars(_Noting)[name] for name in ("_register_hook_dict", "register_hook", "register_prehook")}
watch_hooks(_Link)


def _call_of(tensor: torch.Tensor) -> Call | None:
    """Return the call that computed ``tensor``, which may have been copied afterwards."""
    node = tensor.grad_fn
    if node is None:
        return None
    for found in (node, *(following for following, _ in node.next_functions)):
        call = getattr(found, "linked", None)
        if isinstance(call, Call):
            return call
    return None
