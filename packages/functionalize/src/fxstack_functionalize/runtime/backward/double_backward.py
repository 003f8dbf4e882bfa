"""Gradients that are differentiated again (``create_graph=True``): the captured graph runs again in eager.

A compiled backward has no backward of its own. So if autograd records a backward, the captured graph runs
again on the inputs of the call, and autograd differentiates this run: derivatives of any order are eager's.
For this the forward keeps the call's inputs: leaves, which live as long as the autograd graph anyway, and
weak references to all others. Graphs that cannot run twice (random numbers, effects, mutated inputs) raise an
error with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NoReturn
from weakref import ref

import torch

from fxstack_functionalize import torch_compat
from fxstack_functionalize.errors import INPUT_CHANGED, INPUT_IS_GONE, batched_backward, double_backward
from fxstack_functionalize.random.functional_random import state_input
from fxstack_functionalize.runtime.backward.anomaly import by_operators, is_on
from fxstack_functionalize.runtime.backward.batched import is_batched
from fxstack_functionalize.runtime.backward.output_edges import owners
from fxstack_functionalize.shell import Shell
from fxstack_functionalize.subclasses.wrapper_classes import is_wrapper
from fxstack_functionalize.torch_compat import pytree, temporarily_clear_interpreter_stack
from fxstack_functionalize.tracing.engine import version_of
from fxstack_functionalize.tracing.finalize import has_effect
from fxstack_functionalize.tracing.trace import Traced

Kept = tuple[Any, ...]
Once = Callable[[Sequence[Any], Sequence[Any]], tuple[Any, ...]]
Pick = Callable[[Sequence[Any]], tuple[Any, ...]]
Names = Callable[[torch.nn.Module], set[str]]

_version: Callable[[torch.Tensor], int] = torch_compat.tensor_version.__get__


NOTHING_KEPT: Kept = ((), [], (), [])
"""The result of ``SecondOrder.keep`` if autograd saves all inputs."""


class SecondOrder:
    """Differentiates one captured graph in eager. ``refusal``: the reason why that is impossible, or None."""

    def __init__(self, shell: Shell, refusal: str | None, held: Mapping[int, int] | None) -> None:
        """``refusal``: that of the graph. ``held``: the positions of inputs in ``ctx.saved_tensors``.

        ``held`` is None if hooks have packed the saved tensors.
        """
        inputs = shell.info.inputs
        self.refusal = "saved-tensor hooks are on" if held is None else refusal
        self._held = list((held or {}).items())
        kept = [i for i in range(len(inputs)) if i not in (held or {})]
        tensors = [i for i in kept if inputs[i].is_tensor]
        cut = shell.info.cut  # nothing else keeps a detached input alive
        alone = {*cut, state_input(shell.captured.graph_module.graph)}
        leaves = [i for i in tensors if i in alone or (inputs[i].requires_grad and inputs[i].is_leaf)]
        others = [i for i in tensors if i not in leaves]
        numbers = [i for i in kept if i not in tensors]
        self.keeps = bool(kept)
        self._places = [*leaves, *others, *numbers]
        self._leaves, self._others, self._numbers = map(picker, (leaves, others, numbers))
        self._graph = shell.captured.graph_module
        self._owned = dict(shell.captured.owned)
        self._count = len(self._graph.graph.find_nodes(op="placeholder"))
        self._wanted = shell.info.wanted
        self._differentiable = shell.info.differentiable
        self._owners = owners(shell.info)

    def keep(self, args: Sequence[Any]) -> Kept:
        """Return the inputs of a call that autograd does not save (some as weak references), and versions."""
        leaves, others = self._leaves(args), self._others(args)
        return leaves, [*map(ref, others)], self._numbers(args), versions_of((*leaves, *others))

    def gradients(self, kept: Kept, saved: Sequence[Any], grads: Sequence[Any]) -> tuple[Any, ...]:
        """Return the gradients of all inputs, given those of the flat outputs; in grad mode with history.

        Raises:
            RuntimeError: if an input no longer exists, or was changed in place since the call.
        """
        args = self._inputs(kept, saved)
        given = [(at, grads[at]) for at in self._differentiable if grads[at] is not None]
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            # An input may be computed from another input: differentiate each through its own alias. The call
            # was outside the present transforms, so this run is too.
            with temporarily_clear_interpreter_stack():
                for index in self._wanted:
                    args[index] = Alias.apply(args[index])
                owned = {path: args[index] for path, index in self._owned.items()}
                with torch_compat.reparametrize_module(self._graph, owned):
                    run = by_operators(self._graph) if is_on() else self._graph
                    outputs = pytree.tree_leaves(run(*args[: self._count]))
            found = torch.autograd.grad(
                [self._flat(outputs, at) for at, _ in given],
                [args[index] for index in self._wanted],
                [grad for _, grad in given],
                create_graph=again,
                allow_unused=True,
            )
        gradients: list[Any] = [None] * len(args)
        for index, gradient in zip(self._wanted, found, strict=True):
            gradients[index] = gradient
        return tuple(gradients)

    def checked(self, kept: Kept, saved: Sequence[Any], grads: Sequence[Any]) -> tuple[Any, ...] | None:
        """Return the gradients, computed operator by operator; None if an input is gone or was changed."""
        leaves, references, _numbers, versions = kept
        others = [reference() for reference in references]
        if any(other is None for other in others) or versions != versions_of((*leaves, *others)):
            return None
        return self.gradients(kept, saved, grads)

    def _flat(self, outputs: Sequence[Any], position: int) -> torch.Tensor:
        """Return the flat output at ``position``: a result of the graph, or the base of a result."""
        owner = self._owners[position]
        result: torch.Tensor = outputs[owner.output]
        if not owner.base:
            return result
        if result._base is None:
            raise RuntimeError(double_backward("a result is a view in compiled code alone"))
        return result._base

    def special(self, kept: Kept, saved: Sequence[Any], grads: Sequence[Any]) -> tuple[Any, ...]:
        """Return the gradients for batched gradients (``is_grads_batched``) or wrappers, in eager.

        Raises:
            RuntimeError: if the graph cannot run again, or an input is gone or was changed in place.
        """
        if self.refusal is not None:
            raise RuntimeError(batched_backward(self.refusal))
        return self.gradients(kept, saved, grads)

    def refuse(self, kept: Kept, saved: Sequence[Any]) -> Once:
        """Return a function that makes any second differentiation of gradients raise an explanation."""
        inputs = [*kept[0], *(reference() for reference in kept[1]), *saved]

        def once(gradients: Sequence[Any], grads: Sequence[Any]) -> tuple[Any, ...]:
            sources = [t for t in (*inputs, *grads) if t is not None and t.requires_grad]
            tensors = [gradient for gradient in gradients if gradient is not None]
            guarded = iter(_Once.apply(str(self.refusal), len(tensors), *tensors, *sources))
            return tuple(None if gradient is None else next(guarded) for gradient in gradients)

        return once

    def _inputs(self, kept: Kept, saved: Sequence[Any]) -> list[Any]:
        leaves, references, numbers, versions = kept
        others = [reference() for reference in references]
        if any(other is None for other in others):
            raise RuntimeError(INPUT_IS_GONE)
        if versions != versions_of((*leaves, *others)):
            raise RuntimeError(INPUT_CHANGED)
        by_place = dict(zip(self._places, (*leaves, *others, *numbers), strict=True))
        by_place.update((index, saved[place]) for index, place in self._held)
        return [by_place[index] for index in range(len(by_place))]


def are_special(grads: Sequence[Any]) -> bool:
    """Whether a gradient is unknown to compiled code: a batch of gradients, or a wrapper subclass."""
    return any(
        g is not None and (is_batched(g) or (type(g) is not torch.Tensor and is_wrapper(g))) for g in grads
    )


class Alias(torch.autograd.Function):
    """The identity, whose gradients are not views."""

    @staticmethod
    def forward(ctx: object, tensor: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        return tensor.detach()

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        return grad


class _Once(torch.autograd.Function):
    """The identity on the first ``count`` tensors. Differentiating it raises ``why``."""

    @staticmethod
    def forward(ctx: Any, why: str, count: int, *tensors: torch.Tensor) -> tuple[Any, ...]:
        ctx.why = why
        return tuple(tensor.view_as(tensor) for tensor in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *_grads: object) -> NoReturn:
        raise RuntimeError(double_backward(ctx.why))


def refusal(traced: Traced) -> str | None:
    """Return the reason why the captured graph cannot be differentiated in eager later, or None."""
    info = traced.info
    if any(seen.mutates_data or seen.relayouts for seen in info.inputs):
        return "the graph changes its inputs in place"
    if any(has_effect(node) for node in _calls(traced)):
        return "the graph draws random numbers or has effects"
    if info.autocast or not info.grad_mode:
        return "the graph was compiled under autocast or torch.no_grad"
    if info.custom_views or not owners(info).keys() >= set(info.differentiable):
        return "the graph returns views that only autograd knows"
    if not own_names(traced.captured.graph_module).issuperset(traced.captured.owned):
        return "the graph holds tensors that are neither parameters nor buffers"
    return None


def _calls(traced: Traced) -> list[torch.fx.Node]:
    return [node for node in traced.stage_graph.graph_module.graph.nodes if node.op == "call_function"]


def own_names(module: torch.nn.Module) -> set[str]:
    """Return the names of a module's parameters and buffers."""
    parameters = module.named_parameters(remove_duplicate=False)
    buffers = module.named_buffers(remove_duplicate=False)
    return {name for name, _ in (*parameters, *buffers)}


def versions_of(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Return the version counters."""
    try:
        return [*map(_version, tensors)]
    except RuntimeError:  # inference tensors have no counter
        return [version_of(tensor) for tensor in tensors]


def picker(places: Sequence[int]) -> Pick:
    """Return a function that selects the items at ``places``, as a tuple."""
    if not places:
        return lambda _values: ()
    pick = itemgetter(*places)
    return pick if len(places) > 1 else lambda values: (pick(values),)
