"""``torch.utils.checkpoint``: inline the function and tag its nodes for recomputation.

Eager implements checkpoints with saved-tensor hooks, or with an autograd function (reentrant checkpoints).
Here the partitioner implements them: it reads the ``recompute`` tag of the nodes. The contexts of
``create_selective_checkpoint_contexts`` tag each node by their policy (``torch_side/selection``). Random
operators keep the numbers that they drew, so no generator state is restored. Variants with side effects of
their own (other contexts, debugging, random numbers without ``preserve_rng_state``) break the graph.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils import checkpoint as _checkpoint

from fxstack_capture import torch_compat
from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.rules import RULES
from fxstack_capture.torch_side.higher_order.selection import choosing, is_choosing, selecting
from fxstack_capture.trace.state import Args, Kwargs, Trace

# Limits: checkpointed code runs its Python once, with gradients enabled. Eager runs a reentrant checkpoint
# without gradients first, and refuses autograd.grad through the checkpoint. The partitioner decides which
# values are recomputed.


TAG = "must_recompute"
"""The value of the ``recompute`` tag."""

_SIGNATURE = inspect.signature(_checkpoint.checkpoint)


@RULES.rule(_checkpoint.checkpoint)
def checkpoint(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Inline a checkpoint that affects only the saved tensors.

    Interpret torch's own code for other checkpoints.
    """
    by_default = kwargs.get("use_reentrant") is None and _DEFAULT_WARNING is not None
    options = {**kwargs, "use_reentrant": True} if by_default else kwargs
    if not args or not _is_ordinary(trace, options, args[1:]):
        whole = trace.objects.load_attr(fn, "__wrapped__")
        return trace.calls.call(whole, args, kwargs)
    if by_default:
        trace.calls.call(warnings.warn, (_DEFAULT_WARNING,), {})
    return _inline(trace, args, options)


def _call_operator(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Call an operator of checkpoints, the first argument: a checkpoint that is not reentrant."""
    return trace.calls.call(_checkpoint.checkpoint, args[1:], {**kwargs, "use_reentrant": False})


RULES.add(
    _call_operator,
    *(
        type(operator).__call__
        for name in ("tag_activation_checkpoint", "wrap_activation_checkpoint")
        if (operator := getattr(torch.ops.higher_order, name, None)) is not None
    ),
)


def _inline(trace: Trace, args: Args, kwargs: Kwargs) -> Any:
    """Call the function of a checkpoint, the first of ``args``, and tag its nodes for recomputation."""
    function, *inputs = args
    passed = {name: value for name, value in kwargs.items() if name not in _OWN}
    policy = _policy_of(trace, kwargs.get("context_fn", _checkpoint.noop_context_fn))
    if not torch.is_grad_enabled():
        return trace.calls.call(function, tuple(inputs), passed)
    draws_again = kwargs.get("preserve_rng_state", True) is not True
    with trace.torch.checkpoint(TAG):
        if policy is None and not draws_again:
            result = trace.calls.call(function, tuple(inputs), passed)
        else:
            with selecting(trace.torch, policy or _nothing_saved, draws_again=draws_again):
                result = trace.calls.call(function, tuple(inputs), passed)
    if kwargs.get("use_reentrant"):
        _demand_results_of_a_function(result, inputs)
    trace.torch.leave_checkpoint(result)
    return result


def _default_warning() -> str | None:
    """Return the text of the warning about a call without ``use_reentrant``."""
    functions = (inspect.unwrap(_checkpoint.checkpoint), getattr(_checkpoint, "_checkpoint_impl", None))
    texts = (text for fn in functions if inspect.isfunction(fn) for text in fn.__code__.co_consts)
    start = "torch.utils.checkpoint: the use_reentrant parameter"
    return next((text for text in texts if isinstance(text, str) and text.startswith(start)), None)


_DEFAULT_WARNING = _default_warning()

_OWN = {name for name, p in _SIGNATURE.parameters.items() if p.kind is p.KEYWORD_ONLY}
"""The keywords that the checkpoint takes itself; all others go to the function."""
_OWN |= {"preserve_rng_state", "use_reentrant", "context_fn", "determinism_check", "debug"}


class Chosen:
    """The result of ``create_selective_checkpoint_contexts`` inside of compiled code."""

    def __init__(self, policy: object) -> None:
        self.policy = policy


@RULES.rule(_checkpoint.create_selective_checkpoint_contexts)
def _selective(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Return contexts that tag the nodes of a checkpoint by their policy."""
    (wanted,) = args[:1] or (kwargs.get("policy_fn_or_list"),)
    operators = wanted if isinstance(wanted, list) else []
    is_policy = isinstance(wanted, list) or callable(wanted)
    if (
        not is_policy
        or not all(isinstance(op, torch_compat.OpOverload) for op in operators)
        or not is_choosing(trace.torch)
    ):
        return trace.interp.call_function(fn, args, kwargs)
    policy = partial(_is_listed, wanted) if isinstance(wanted, list) else wanted
    return Chosen(policy), Chosen(policy)


def _is_listed(
    listed: list[Any], _context: object, operator: object, *_args: object, **_kwargs: object
) -> bool:
    """Return whether a list of operators has ``operator``: the policy that the list means."""
    return operator in listed


def _nothing_saved(*_args: object, **_kwargs: object) -> bool:
    """The policy of an ordinary checkpoint: recompute every node."""
    return False


def _policy_of(trace: Trace, context_fn: object) -> Any:
    """Return the policy of a selective checkpoint, or None for an ordinary checkpoint.

    ``context_fn`` is the argument of the checkpoint that makes its contexts.
    """
    if context_fn is _checkpoint.noop_context_fn:
        return None
    with choosing(trace.torch):
        contexts = trace.calls.call(context_fn, (), {})
    if not _is_pair(contexts):
        raise graph_break("unsupported-call", "checkpoint, with contexts of the program's own,")
    return contexts[0].policy


def _is_pair(contexts: object) -> bool:
    """Whether ``contexts`` are results of ``create_selective_checkpoint_contexts`` that share a policy."""
    if type(contexts) is not tuple or [*map(type, contexts)] != [Chosen, Chosen]:
        return False
    return contexts[0].policy is contexts[1].policy


def _is_ordinary(trace: Trace, kwargs: Kwargs, inputs: tuple[Any, ...]) -> bool:
    """Whether a checkpoint changes only which tensors are saved."""
    reentrant = kwargs.get("use_reentrant")
    context_fn = kwargs.get("context_fn", _checkpoint.noop_context_fn)
    return (
        (reentrant is False or (reentrant is True and _is_reentrant(kwargs, inputs)))
        and not (reentrant and context_fn is not _checkpoint.noop_context_fn)
        and kwargs.get("determinism_check", "default") in {"default", "none"}
        and not kwargs.get("debug")
        and trace.objects.load_attr(_checkpoint, "_checkpoint_debug_enabled") is None
    )


def _is_reentrant(kwargs: Kwargs, inputs: tuple[Any, ...]) -> bool:
    """Whether autograd sees this reentrant checkpoint, and eager accepts the checkpoint without a warning."""
    if not kwargs.keys() <= _OWN:
        return False
    wants = any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs)
    return wants or not torch.is_grad_enabled()


def _demand_results_of_a_function(result: object, inputs: list[Any]) -> None:
    """Break the graph unless the results could be results of an ``autograd.Function``.

    These are new tensors, and all of them require grad whose type can.
    """
    for value in result if isinstance(result, tuple) else (result,):
        plain = value is None or isinstance(value, (bool, int, float, str))
        continuous = isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
        right = isinstance(value, torch.Tensor) and value.requires_grad is continuous
        if not (plain or right) or any(value is x for x in inputs if not plain):
            raise graph_break("unsupported-call", "a reentrant checkpoint that gives such results")
