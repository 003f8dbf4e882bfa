"""Gradients inside of the program (``torch.autograd.grad``, ``backward``), and leaves that the program makes.

Fakes have an autograd history like real tensors. Therefore autograd really computes gradients of fakes, and
``torch.autograd.grad`` becomes one node. ``backward`` becomes ``torch.autograd.grad`` for the leaves of the
history, followed by the work of ``AccumulateGrad``: keep a gradient, copy it into the layout of the leaf, or
add it in place.

If the history leaves the trace or has hooks, the graph breaks, and plain Python computes the gradients.

A leaf may stay inside of the graph, for example a new ``Parameter``. No code can see its gradient. If a
result requires grad only because of such leaves, later stages treat it as a result that does not require
grad. The replacement code gives such a result a history that drops the gradient (``with_hidden_history``).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import torch
from torch import nn

from fxstack_capture import torch_compat
from fxstack_capture.breaks import GraphBreak, graph_break
from fxstack_capture.callers import calls_program
from fxstack_capture.torch_compat import FakeTensor, tree_leaves
from fxstack_capture.torch_side.autograd.accumulation import accumulate_into
from fxstack_capture.torch_side.fakes.writes import is_leaf
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.torch_side.rules.attributes import HOOKS, hooks_of
from fxstack_capture.torch_side.subclasses.fake_classes import shown_class
from fxstack_capture.trace.state import Args, Kwargs

# Limits: if the graph has already freed the history of a result, its ``grad_fn`` has the name Error, and a
# second gradient raises eager's exception. If a result requires grad only because of leaves that the graph
# made, its ``grad_fn`` has another name than in eager, and the result is not a view.

_HOOKS = torch_compat.top_saved_tensors_default_hooks
_GRAD = inspect.signature(torch.autograd.grad)
_BACKWARD = inspect.signature(torch.autograd.backward)
_METHOD = inspect.signature(torch.Tensor.backward)

OUTSIDE = "torch::autograd::Error"
"""The name of the ``grad_fn`` that inputs have if they are no leaves (``fakes.with_history``)."""


@calls_program
def grad(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Record ``torch.autograd.grad`` as one node. Break the graph if the history leaves the trace."""
    if tracer.transforms.concern(args, kwargs):
        return tracer.record(fn, args, kwargs)
    bound = _GRAD.bind(*args, **kwargs)
    _demand_inside(tracer, tree_leaves(bound.arguments["outputs"]))
    return _record(tracer, fn, bound.args, bound.kwargs)


@calls_program
def method(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> None:
    """Apply the rule for ``Tensor.backward``. The tensor is bound to the method, or is an argument."""
    owner = getattr(fn, "__self__", None)
    bound = _METHOD.bind(*((owner, *args) if isinstance(owner, torch.Tensor) else args), **kwargs)
    options = dict(bound.arguments)
    _differentiate(tracer, [options.pop("self")], [options.pop("gradient", None)], **options)


@calls_program
def backward(tracer: TracerProtocol, _fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> None:
    """Apply the rule for ``torch.autograd.backward``. It differentiates several roots at once. Break the
    graph for ``grad_variables``.
    """
    options = dict(_BACKWARD.bind(*args, **kwargs).arguments)
    if options.pop("grad_variables", None) is not None:
        raise graph_break("unsupported-call", "torch.autograd.backward with grad_variables")
    roots = _as_list(options.pop("tensors"))
    gradients = options.pop("grad_tensors", None)
    tensors = [None] * len(roots) if gradients is None else _as_list(gradients)
    _differentiate(tracer, roots, tensors, **options)


def _as_list(value: Any) -> list[Any]:
    """Return the tensors of an argument of ``backward`` as a list. The argument is one tensor or a sequence."""
    return [value] if isinstance(value, torch.Tensor) else list(value)


def _differentiate(
    tracer: TracerProtocol,
    roots: list[Any],
    gradients: list[Any],
    *,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: object = None,
) -> None:
    """Record ``backward``: one ``torch.autograd.grad`` for all leaves, then the accumulation into each leaf.
    Break the graph for ``create_graph``, under a transform, without leaves, and for ``inputs`` that are no
    leaves.
    """
    if create_graph:
        raise graph_break("unsupported-call", "backward with create_graph=True")
    if tracer.transforms.concern(roots, {}):
        raise graph_break("unsupported-call", "backward inside of a torch.func transform")
    leaves = _demand_inside(tracer, roots)
    if inputs is not None:
        chosen = _as_list(inputs)
        if not chosen or not all(any(w is leaf for leaf in leaves) for w in chosen):
            raise graph_break("unsupported-call", "backward with inputs that are not its leaves")
        leaves = chosen
    if not leaves:
        raise graph_break("unsupported-call", "backward of a tensor without leaves")
    leaf_gradients = _record(
        tracer, torch.autograd.grad, (roots, leaves, gradients, retain_graph, False, True, True), {}
    )
    busy = [tensor for tensor in (*roots, *gradients) if isinstance(tensor, torch.Tensor)]
    for leaf, gradient in zip(leaves, leaf_gradients, strict=True):
        if gradient is not None:
            accumulate_into(tracer, leaf, gradient, busy)
            busy.append(gradient)


def _record(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Record a call of ``torch.autograd``. If it raises, the graph breaks, so that plain Python raises the
    exact error.
    """
    # the program's hooks would also pack and unpack the tensors that the gradient saves
    if _HOOKS(True) is not None:
        raise graph_break("unsupported-call", "torch.autograd under saved-tensor hooks")
    tracer.differentiated = True
    try:
        return tracer.record(fn, args, kwargs)
    except GraphBreak:
        raise
    except Exception as error:  # plain Python raises the exact error of torch
        raise graph_break("unsupported-call", f"torch.autograd ({error})") from error


# --- autograd history ----------------------------------------------------------------------------


def _demand_inside(tracer: TracerProtocol, roots: Sequence[Any]) -> list[torch.Tensor]:
    """Return the leaves in the history of ``roots``. Break the graph if the history leaves the trace or has
    hooks.
    """
    if not all(isinstance(root, FakeTensor) for root in roots):
        raise graph_break("unsupported-call", "torch.autograd on what is not a tensor")
    tracer.guard_flag(torch.is_anomaly_enabled)
    if torch.is_anomaly_enabled():  # anomaly mode reads the data of all gradients
        raise graph_break("unsupported-call", "a gradient in anomaly mode")
    with tracer.unrecorded():
        leaves = [_leaf_at(tracer, node) for node in history(roots)]
    return [leaf for leaf in leaves if leaf is not None]


def _leaf_at(tracer: TracerProtocol, node: Any) -> torch.Tensor | None:
    """Return the leaf into which the autograd node accumulates a gradient. None for any other node. Break the
    graph for history from outside.
    """
    if node.name() == OUTSIDE:
        raise graph_break("unsupported-call", "a gradient through history outside of the graph")
    leaf: torch.Tensor | None = getattr(node, "variable", None)
    if leaf is not None:
        _demand_known(tracer, leaf)
    return leaf


def history(roots: Sequence[torch.Tensor]) -> Iterator[Any]:
    """Yield each autograd node in the history of ``roots`` once."""
    seen: set[Any] = set()
    work = [_function_of(root) for root in roots]
    while work:
        node = work.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        work += [following for following, _ in reversed(node.next_functions)]


def _function_of(root: torch.Tensor) -> Any:
    """Return the autograd node of a tensor. For a leaf, it is ``AccumulateGrad``. None if there is no node."""
    if root.requires_grad and is_leaf(root) is not False:
        # ``get_gradient_edge`` finds no node in two cases: for a view of a leaf made under no_grad, and in
        # inference mode.
        with suppress(AssertionError, AttributeError):
            return torch.autograd.graph.get_gradient_edge(root).node
        return None
    return root.grad_fn if is_leaf(root) is False else None


def _demand_known(tracer: TracerProtocol, leaf: torch.Tensor) -> None:
    """Break the graph if the graph does not know a leaf, or if the leaf has hooks. Autograd would call these."""
    if not tracer.builder.is_known(leaf):
        raise graph_break("unsupported-call", "a gradient of a tensor outside of the graph")
    if tracer.source_of(leaf) is not None and any(hooks_of(tracer, leaf, name) for name in HOOKS):
        raise graph_break("unsupported-call", "a gradient of a tensor that has hooks")


# --- freed history -------------------------------------------------------------------------------


def has_freed_history(tensor: torch.Tensor) -> bool:
    """Return whether a gradient in the graph has freed the history of a fake. The fake leaves the graph."""
    with suppress(RuntimeError):  # autograd cannot make the ``grad_fn`` of this view
        return any(map(_is_freed, history([tensor])))
    return False


def _is_freed(node: object) -> bool:
    """Return whether the saved tensors of an autograd node are freed."""
    # Running the node would call the program's backward functions, so read the saved tensors instead.
    try:
        kind: Any = type(node)
        for name in _saved_names(kind):
            getattr(node, name, None)
    except RuntimeError as error:
        return _SECOND_TIME in str(error)
    return False


@cache
def _saved_names(kind: object) -> tuple[str, ...]:
    """Return the names of the attributes of ``kind``, a class of autograd nodes, that read saved values."""
    return tuple(n for n in dir(kind) if n.startswith("_saved_") or n == "saved_tensors")


_SECOND_TIME = "Trying to backward through the graph a second time"
_MESSAGE = (
    f"{_SECOND_TIME} (or directly access saved tensors after they have already been freed). Saved "
    "intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to access "
    "saved tensors after calling backward."
)


def with_freed_history(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` with ``requires_grad`` and a ``grad_fn`` that raises the error of a freed history.

    The replacement code calls this for a result for which ``has_freed_history`` is true.
    """
    spend = torch_compat.DelayedError(_MESSAGE, 1)
    with torch.enable_grad():
        return spend(tensor.detach().requires_grad_())


@calls_program
def make_parameter(tracer: TracerProtocol, data: object, requires_grad: bool) -> torch.Tensor:
    """Record ``torch.nn.Parameter(data, requires_grad)``. Raises the exceptions of ``Parameter``."""
    if not isinstance(data, FakeTensor) or shown_class(data) is not None:
        raise graph_break("unsupported-call", "torch.nn.Parameter of what is no plain tensor of the graph")
    if requires_grad and not (data.is_floating_point() or data.is_complex()):
        torch_compat.make_subclass(nn.Parameter, torch.zeros((), dtype=data.dtype), True)  # raises the error
    parameter: torch.Tensor = tracer.record(torch.Tensor.detach, (data,), {})
    if requires_grad:
        tracer.record(torch.Tensor.requires_grad_, (parameter,), {})
    parameter._is_param = True
    tracer.leave_as(parameter, as_parameter)
    return parameter


def as_parameter(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` with the class ``Parameter``. The replacement code calls this for a graph result."""
    # The object itself must change, because autograd's history leads to the tensor object that the graph
    # returns.
    tensor.__class__ = nn.Parameter
    return tensor


def has_hidden_history(tracer: TracerProtocol, tensor: torch.Tensor) -> bool:
    """Return whether ``tensor``, which leaves the graph, requires grad only because of leaves made in the
    graph.
    """
    if not tensor.requires_grad or is_leaf(tensor) is not False:
        return False
    for node in history([tensor]):
        leaf = getattr(node, "variable", None)
        outside = leaf is not None and tracer.source_of(leaf) is not None
        if outside or node.name() == OUTSIDE:
            return False
    return True


class _Dropped(torch.autograd.Function):
    """The identity function of its first argument, for ``with_hidden_history``. The backward drops the
    gradient.

    The second argument is a new leaf that requires grad, so the result requires grad.
    """

    @staticmethod
    def forward(ctx: object, tensor: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:  # noqa: ARG004 - torch's signature
        """Return the tensor without its history."""
        return tensor.data

    @staticmethod
    def backward(ctx: object, *gradients: object) -> Any:  # noqa: ARG004
        """Return no gradients. No code holds the leaf, and the tensor's real history is in the graph."""
        return None, None


def with_hidden_history(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` with ``requires_grad``, as a non-leaf. The replacement code calls this for a graph result."""
    if tensor.requires_grad:  # the captured graph itself has run, with autograd
        return tensor
    with torch.enable_grad():
        leaf = torch.empty(0, requires_grad=True)
        return _Dropped.apply(tensor, leaf)
