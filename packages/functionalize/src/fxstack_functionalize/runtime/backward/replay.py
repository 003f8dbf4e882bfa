"""Run the captured graph of a call again in eager, and let autograd differentiate this run.

This is the one fallback for cases that a compiled backward cannot handle. The cases are gradients of
gradients (``create_graph=True``), batches of gradients, gradients that are wrapper subclasses, anomaly mode,
and gradients between results that the program observes (``edge_gradients``). All these gradients are then
computed by eager. In anomaly mode the graph runs operator by operator, so that eager checks every gradient
for NaN, and an error names the operator and its forward line. A compiled backward would only show its last
gradients.

For this run, the forward keeps the inputs of the call until a backward frees the saved tensors. Eager would
keep the inputs, too, or values computed from them. If a graph cannot run twice, for example because it draws
random numbers, these gradients raise an error with the reason. A batch of gradients (``vmap`` over
``torch.autograd.grad``, ``is_grads_batched``) is the exception: the compiled backward runs once for each
gradient (``run_one_by_one``). Such a graph keeps weak references to inputs that are no leaves, because only
the error needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any
from weakref import ref

import torch
from torch.fx import GraphModule, Interpreter
from torch.fx.traceback import preserve_node_meta

from fxstack_functionalize import torch_compat
from fxstack_functionalize.errors import INPUT_CHANGED, double_backward
from fxstack_functionalize.metadata.wrapper_classes import is_wrapper
from fxstack_functionalize.operators.control_flow import with_rules
from fxstack_functionalize.random.functional_random import state_input
from fxstack_functionalize.runtime.backward.output_edges import find_owners
from fxstack_functionalize.torch_compat import pytree, temporarily_clear_interpreter_stack
from fxstack_functionalize.trace import Shell
from fxstack_functionalize.tracer.engine import version_of

Change = Callable[[torch.Tensor], Any]

_functorch: Any = torch_compat.functorch
_is_batched: Callable[[torch.Tensor], bool] = _functorch.is_batchedtensor
_is_legacy_batched: Callable[[torch.Tensor], bool] = _functorch.is_legacy_batchedtensor
Kept = tuple[Any, ...]
Pick = Callable[[Sequence[Any]], tuple[Any, ...]]
Run = Callable[[Mapping[str, Any], Sequence[Any]], Any]

_version: Callable[[torch.Tensor], int] = torch_compat.tensor_version.__get__


NOTHING_KEPT: Kept = ((), (), (), [])
"""The result of ``Replay.keep`` if autograd saves all inputs."""


@dataclass(frozen=True, slots=True)
class Again:
    """One run of a captured graph in eager."""

    outputs: Sequence[Any]
    """User outputs."""
    inputs: Sequence[torch.Tensor]
    """Aliases of the inputs that get gradients."""
    explain: Callable[[str], str] = double_backward
    """Returns the error text for a reason why the run cannot be differentiated."""


class Replay:
    """Differentiates one captured graph in eager.

    ``refusal``: the reason why the graph cannot run again, or None. ``held``: number of an input -> its
    position in ``ctx.saved_tensors``. ``pieces``: whether the graph may run in pieces although it cannot run
    as a whole.
    """

    def __init__(self, shell: Shell, refusal: str | None, held: Mapping[int, int], *, pieces: bool) -> None:
        inputs = shell.info.inputs
        self.refusal = refusal
        self._weakly = refusal is not None and not pieces
        self._held = list(held.items())
        unsaved = [i for i in range(len(inputs)) if i not in held]
        tensors = [i for i in unsaved if inputs[i].is_tensor]
        cut = shell.info.cut  # nothing else keeps a detached input alive
        alone = {*cut, state_input(shell.captured.graph_module.graph)}
        leaves = [i for i in tensors if i in alone or (inputs[i].requires_grad and inputs[i].is_leaf)]
        non_leaves = [i for i in tensors if i not in leaves]
        numbers = [i for i in unsaved if i not in tensors]
        self.keeps = bool(unsaved)
        self._places = [*leaves, *non_leaves, *numbers]
        self._leaves, self._others, self._numbers = map(_picker, (leaves, non_leaves, numbers))
        self._graph = shell.captured.graph_module
        targets = [node.target for node in self._graph.graph.nodes]
        self.states = [state for target in targets if (state := getattr(target, "state", None))]
        """The Python state that custom backwards read. A compiled backward holds this state as constants."""
        self._owned = dict(shell.captured.owned)
        self._count = shell.captured.placeholder_count
        self._wanted = shell.info.wanted
        self._total = len(inputs)
        self._owners = find_owners(shell.info)

    def keep(self, args: Sequence[Any]) -> Kept:
        """Return the inputs of a call that autograd does not save, and their versions."""
        leaves, non_leaves = self._leaves(args), self._others(args)
        references = tuple(map(ref, non_leaves)) if self._weakly else non_leaves
        return leaves, references, self._numbers(args), _versions_of((*leaves, *non_leaves))

    def run(self, kept: Kept, saved: Sequence[Any], run: Run | None = None) -> Again:
        """Run the graph on the inputs of the call, with a history that ends at these inputs.

        In grad mode the inputs' own histories continue the history of the run. ``run``: a function to call in
        place of the graph. It gets the graph's own tensors, and the arguments of the call.

        Raises:
            RuntimeError: if an input was changed in place since the call.
        """
        args = self._inputs(kept, saved)
        has_history = torch.is_grad_enabled()
        # The call was outside the present transforms, so this run is too.
        with torch.enable_grad(), temporarily_clear_interpreter_stack():
            # An input may be computed from another input: differentiate each through its own alias.
            for index in self._wanted:
                args[index] = make_alias(args[index], has_history=has_history)
            owned = {path: args[index] for path, index in self._owned.items()}
            outputs = (run or self._whole)(owned, args[: self._count])
        return Again(pytree.tree_leaves(outputs), [args[index] for index in self._wanted])

    def _whole(self, owned: Mapping[str, Any], args: Sequence[Any]) -> Any:
        """Run the whole captured graph with the tensors ``owned`` in place of its own."""
        with torch_compat.reparametrize_module(self._graph, owned):
            run = with_rules(self._graph)  # the own gradients of nested operators can be differentiated again
            if run is self._graph and torch.is_anomaly_enabled():
                run = as_interpreter(self._graph)
            return run(*args)

    def differentiate(self, run: Again, grads: Sequence[Any]) -> tuple[Any, ...]:
        """Return the gradients of all inputs for the gradients ``grads`` of the flat outputs; in grad mode with history."""
        if not run.inputs:  # the history of the results ends at leaves of the graph
            return (None,) * self._total
        gradient_of = {at: grad for at, grad in enumerate(grads) if grad is not None}
        gradients_of_inputs = torch.autograd.grad(
            [self.flat(run, at) for at in gradient_of],
            list(run.inputs),
            list(gradient_of.values()),
            create_graph=torch.is_grad_enabled(),
            allow_unused=True,
        )
        gradients = dict(zip(self._wanted, gradients_of_inputs, strict=True))
        return tuple(gradients.get(index) for index in range(self._total))

    def flat(self, run: Again, position: int) -> torch.Tensor:
        """Return the flat output at ``position``: a result of the graph, or the base of a result."""
        owner = self._owners.get(position)
        value: Any = None if owner is None else run.outputs[owner.output]
        if owner is not None and owner.base:
            value = value._base
        if value is None:
            raise RuntimeError(run.explain("a result shares memory in compiled code alone"))
        tensor: torch.Tensor = value
        return tensor

    def gradients(self, kept: Kept, saved: Sequence[Any], grads: Sequence[Any]) -> tuple[Any, ...]:
        """Run the graph again and return the gradients of all inputs; in grad mode with history.

        Raises:
            RuntimeError: if an input was changed in place since the call.
        """
        return self.differentiate(self.run(kept, saved), grads)

    def raise_changed(self) -> None:
        """Raise the error of a graph that cannot run again, because the program changed the state that its backward read."""
        raise RuntimeError(double_backward(str(self.refusal)))

    def refuse(
        self, kept: Kept, saved: Sequence[Any], gradients: Sequence[Any], grads: Sequence[Any]
    ) -> tuple[Any, ...]:
        """Return ``gradients`` of the call, such that any second differentiation raises an explanation."""
        non_leaves = [reference() for reference in kept[1]] if self._weakly else kept[1]
        inputs = (*kept[0], *non_leaves, *saved, *grads)
        sources = [t for t in inputs if t is not None and t.requires_grad]
        text = double_backward(str(self.refusal)).encode()
        node = torch_compat.DelayedError(text, len(gradients) + len(sources))
        return tuple(node(*gradients, *sources)[: len(gradients)])

    def _inputs(self, kept: Kept, saved: Sequence[Any]) -> list[Any]:
        """Return the arguments of the call in order. Raise RuntimeError if one of them was changed in place."""
        if has_changed(kept):
            raise RuntimeError(INPUT_CHANGED)
        leaves, non_leaves, numbers, _versions = kept
        by_position = dict(zip(self._places, (*leaves, *non_leaves, *numbers), strict=True))
        by_position.update((index, saved[position]) for index, position in self._held)
        return [by_position[index] for index in range(len(by_position))]


def has_changed(kept: Kept) -> bool:
    """Whether the program changed an input of the call in place, so that another run would differ from the call."""
    leaves, non_leaves, _numbers, versions = kept
    return bool(versions != _versions_of((*leaves, *non_leaves)))


def are_unsupported(grads: Sequence[Any]) -> bool:
    """Whether a gradient is unknown to compiled code: a batch of gradients, or a wrapper subclass."""
    return any(
        g is not None and (is_batched(g) or (type(g) is not torch.Tensor and is_wrapper(g))) for g in grads
    )


def make_alias(tensor: torch.Tensor, *, has_history: bool) -> torch.Tensor:
    """Return an alias of ``tensor`` that gets a gradient.

    ``has_history``: whether the alias has an autograd edge to ``tensor``.
    """
    return _Alias.apply(tensor) if has_history else tensor.detach().requires_grad_()


class _Alias(torch.autograd.Function):
    """The identity, whose gradients are not views."""

    @staticmethod
    def forward(ctx: object, tensor: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        return tensor.detach()

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        return grad


def _versions_of(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Return the version counters."""
    try:
        return [*map(_version, tensors)]
    except RuntimeError:  # inference tensors have no counter
        return [version_of(tensor) for tensor in tensors]


def _picker(positions: Sequence[int]) -> Pick:
    """Return a function that selects the items at ``positions``, as a tuple."""
    if not positions:
        return lambda _values: ()
    pick = itemgetter(*positions)
    return pick if len(positions) > 1 else lambda values: (pick(values),)


def as_interpreter(graph_module: GraphModule) -> Callable[..., Any]:
    """Return ``graph_module`` as an eager function whose autograd nodes record the lines of its nodes.

    For anomaly mode, whose errors show these lines.
    """

    def call(*args: object) -> Any:
        with preserve_node_meta():
            return Interpreter(graph_module).run(*args)

    return call


def is_batched(gradient: torch.Tensor) -> bool:
    """Whether ``gradient`` is a batch, in either kind of ``vmap``."""
    return _is_batched(gradient) or _is_legacy_batched(gradient)


def are_batched(gradients: Sequence[Any]) -> bool:
    """Whether one of ``gradients`` is a batch."""
    return any(gradient is not None and is_batched(gradient) for gradient in gradients)


def run_one_by_one(run: Callable[[Sequence[Any]], Sequence[Any]], gradients: Sequence[Any]) -> list[Any]:
    """Return the results of ``run`` for each gradient in the batches, batched again."""
    present = [gradient for gradient in gradients if gradient is not None]
    if any(map(_is_batched, present)):
        split, join = _over_level(max(map(_functorch.maybe_get_level, filter(_is_batched, present))))
    elif any(map(_is_legacy_batched, present)):
        split, join = _over_legacy_level()
    else:
        with temporarily_clear_interpreter_stack():
            return [*run(gradients)]
    unwrapped = [None if gradient is None else split(gradient) for gradient in gradients]
    count = max(len(slices) for slices in unwrapped if isinstance(slices, tuple))
    # A gradient that is the same for the whole batch is no tuple, or a tuple of one item.
    columns = [
        (slices if len(slices) == count else slices * count)
        if isinstance(slices, tuple)
        else (slices,) * count
        for slices in unwrapped
    ]
    results_by_item = [run_one_by_one(run, items) for items in zip(*columns, strict=True)]
    return [
        None if results[0] is None else join(torch.stack(results))
        for results in zip(*results_by_item, strict=True)
    ]


def _over_level(level: int) -> tuple[Change, Change]:
    """Return (unwrap, wrap) for ``level`` of ``torch.func.vmap``, which is the innermost level."""

    def split(g: torch.Tensor) -> Any:
        """Return the members of a batched gradient, or a gradient that is not batched at this level as it is."""
        if not _is_batched(g) or _functorch.maybe_get_level(g) != level:
            return g
        return _functorch.get_unwrapped(g).unbind(_functorch.maybe_get_bdim(g))

    return split, lambda stacked: _functorch._add_batch_dim(stacked, 0, level)


def _over_legacy_level() -> tuple[Change, Change]:
    """Return (unwrap, wrap) for the innermost level of autograd's own ``vmap``."""
    level = torch_compat.vmapmode_increment_nesting() - 1
    torch_compat.vmapmode_decrement_nesting()

    def split(g: torch.Tensor) -> Any:
        return torch_compat.remove_batch_dim(g, level, 1, 0).unbind(0) if _is_legacy_batched(g) else g

    return split, lambda stacked: torch_compat.add_batch_dim(stacked, 0, level)
