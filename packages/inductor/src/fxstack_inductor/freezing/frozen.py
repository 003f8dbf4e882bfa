"""A compiled graph whose constant part is recomputed when the model's tensors have changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

import torch
from torch.fx import GraphModule, Interpreter
from torch.optim.optimizer import register_optimizer_step_post_hook

from fxstack_inductor.freezing import norms, packing
from fxstack_inductor.freezing.constants import Split, constant_nodes, split
from fxstack_inductor.lower.rewrites.channels_last import CPU, channels_last
from fxstack_interchange.format.show import show_graph
from fxstack_interchange.modules import copied_graph, make_graph_module
from fxstack_interchange.passes import NothingToDo, Pass, run_passes

Compiled = Callable[..., tuple[Any, ...]]
Stamp = tuple[object, tuple[tuple[int, int], ...]]


# Limits: a write through .data, or by a direct call of a fused optimizer's operator, is not detected. Folded
# and packed weights exist twice in memory, and symbolic batch sizes have no packed weights. Frozen programs are not kept on
# disk.

MOST_MISSES = 8
"""Number of consecutive calls with new weights after which the whole graph is compiled: the weights vary."""


@dataclass(frozen=True, slots=True)
class Folded:
    """Results of the constant part for one state of the weights.

    ``state`` keeps the memory of the weights alive, so that no other tensor gets the same address. ``copies``
    are the old values of the tensors that are compared by value.
    """

    stamp: Stamp
    """The optimizer step, and addresses and versions of the weights, when the values were computed."""
    state: tuple[torch.Tensor, ...]
    copies: tuple[torch.Tensor, ...]
    values: tuple[torch.Tensor, ...]
    """Results of ``Split.constants``, the last arguments of ``Split.rest``."""


@dataclass(eq=False)
class Frozen:
    """The callable of a frozen graph.

    A tensor counts as unchanged if its address and version are the same and no optimizer has made a step. For
    running statistics, the values must be the same as well. So a write through ``.data`` is not seen;
    assigning ``.data`` and in-place operators are seen.
    """

    parts: Split
    """The two graphs, and the positions of their arguments."""
    run: Compiled
    """The compiled ``parts.rest``, for each call."""
    plain: Callable[[], Compiled]
    """Compiles the whole graph, for tensors without versions (of ``torch.inference_mode``)."""
    folded: Folded | None = None
    """The stored results; None before the first call, and once the weights vary."""
    misses: int = 0
    """Number of consecutive calls that found new weights."""
    unfrozen: list[Compiled] = field(default_factory=list)
    """The compiled whole graph, once a call needed it."""

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        if self.unfrozen:
            return self.unfrozen[0](*args)
        state = [args[k] for k in self.parts.state]
        try:
            stamp = (LAST.step, tuple((t.data_ptr(), t._version) for t in state))
        except RuntimeError:  # tensors made in inference mode have no version
            return self._unfrozen()(*args)
        compared = [args[k] for k in self.parts.compared]
        folded = self.folded
        if folded is not None and folded.stamp == stamp and _equal(compared, folded.copies):
            self.misses = 0
        elif self.misses < MOST_MISSES:
            self.misses += 1
            # Concurrent calls may each compute the constants; each call uses its own results.
            folded = self.folded = self._fold(stamp, state, compared)
        else:
            self.folded = None
            return self._unfrozen()(*args)
        return self.run(*[args[k] for k in self.parts.kept], *folded.values)

    def _fold(self, stamp: Stamp, state: Sequence[torch.Tensor], compared: Sequence[torch.Tensor]) -> Folded:
        """Compute the constant part for the present state."""
        with torch.no_grad():
            tensors = tuple(t.detach() for t in state)
            copies = tuple(t.detach().clone() for t in compared)
            interpreter = Interpreter(self.parts.constants)
            interpreter.extra_traceback = False
            return Folded(stamp, tensors, copies, tuple(interpreter.run(*tensors)))

    def _unfrozen(self) -> Compiled:
        """Return the compiled whole graph. The first call compiles the graph."""
        if not self.unfrozen:
            self.unfrozen.append(self.plain())
        return self.unfrozen[0]


def _equal(current: Sequence[torch.Tensor], stored: Sequence[torch.Tensor]) -> bool:
    """Whether the tensors have the same elements as their stored copies."""
    return all(map(torch.equal, current, stored))


@dataclass(frozen=True, slots=True)
class Freezing:
    """A graph between two passes. The passes change ``graph_module``, a copy, in place."""

    graph_module: GraphModule
    channels_last: bool = True
    """Whether images may be laid out channels last."""
    parts: Split | None = None
    """Set by ``split_constants``; None before."""


def fold_norms(state: Freezing) -> Freezing | NothingToDo:
    """Fold batch norms with running statistics into the weights of the convolutions before them.

    >>> example("fold_norms", lambda x, w, m, v: norm(torch.conv2d(x, w), m, v), *IMAGES)
    - convolution = aten.convolution(arg0_1, arg1_1, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    + add_scalar = aten.add.Scalar(arg3_1, 1.0)
    + rsqrt_default = aten.rsqrt(add_scalar)
    + view_default = aten.view(rsqrt_default, [-1, 1, 1, 1])
    + mul_tensor = aten.mul.Tensor(arg1_1, view_default)
    ...
    + return convolution
    """
    copy = state.graph_module
    folded = norms.fold_norms(copy.graph, constant_nodes(copy))
    return state if folded else NothingToDo("no batch norm of constants follows a convolution")


def lay_out_weights(state: Freezing) -> Freezing | NothingToDo:
    """Lay out the images of convolutions channels last, with the weights, which are copied once.

    >>> example("lay_out_weights", lambda x, w: torch.conv2d(x, w).sum(), (1, 2, 8, 8), (16, 2, 3, 3))
    - convolution = aten.convolution(arg0_1, arg1_1, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    + arg0_1_channels_last = aten.clone(arg0_1, memory_format=torch.channels_last)
    + arg1_1_channels_last = aten.clone(arg1_1, memory_format=torch.channels_last)
    ...
    """
    if not state.channels_last:
        return NothingToDo("the option channels_last is off")
    copy = state.graph_module
    changed = channels_last(copy, CPU, {node.name for node in constant_nodes(copy)})
    if changed is copy:
        return NothingToDo("no convolutions of images for which the layout pays, or too many copies")
    return replace(state, graph_module=changed)


def pack_products(state: Freezing) -> Freezing | NothingToDo:
    """Repack constant matrices for oneDNN's products, where a measurement shows that these are faster.

    >>> example("pack_products", lambda x, w: x @ w, (2, 256), (256, 256))
    - mm = aten.mm(arg0_1, arg1_1)
    - return mm
    + pack = fxstack_inductor.freezing.packing.pack(arg1_1, 2)
    + _linear_pointwise_default = mkldnn._linear_pointwise(arg0_1, pack, None, 'none', [], '')
    + return _linear_pointwise_default
    """
    copy = state.graph_module
    packed = packing.pack_products(copy.graph, constant_nodes(copy))
    return state if packed else NothingToDo("no product is faster with a packed matrix")


def pack_convolutions(state: Freezing) -> Freezing | NothingToDo:
    """Repack the constant weights of convolutions over channels-last images, as oneDNN would in each call.

    >>> example("pack_convolutions", lambda x, w: torch.conv2d(x, w), (1, 1, 4, 4), (1, 1, 3, 3))
    - convolution = aten.convolution(arg0_1, arg1_1, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    - return convolution
    + pack_weight = fxstack_inductor.freezing.packing.pack_weight(arg1_1, [0, 0], [1, 1], [1, 1], 1, [1, 1, 4, 4])
    ...
    """
    copy = state.graph_module
    packed = packing.pack_convolutions(copy.graph, constant_nodes(copy))
    return state if packed else NothingToDo("no convolution of channels-last images has constant weights")


def split_constants(state: Freezing) -> Freezing | NothingToDo:
    """Split the graph into a part that depends on the model's state alone, and the rest.

    >>> example("split_constants", lambda x, w: x @ w.exp())
    - arg0_1: f32[4, 4],
    - mm = aten.mm(arg0_1, exp)
    + exp,
    + arg0_1: f32[4, 4],
    + exp_folded: f32[4, 4],
    + mm = aten.mm(arg0_1, exp_folded)
    """
    parts = split(state.graph_module)
    if parts is None:
        return NothingToDo("nothing that takes time depends on the model's state alone")
    return replace(state, parts=parts)


def text(state: Freezing) -> str:
    """Return the graph as text, or its two parts, for dumps between passes."""
    if state.parts is None:
        return show_graph(state.graph_module.graph)
    return f"{show_graph(state.parts.constants.graph)}\n{show_graph(state.parts.rest.graph)}"


FREEZE: Final = (
    Pass("fold_norms", fold_norms),
    Pass("lay_out_weights", lay_out_weights),
    Pass("pack_products", pack_products),
    Pass("pack_convolutions", pack_convolutions),
    Pass("split_constants", split_constants),
)


def freeze(
    graph_module: GraphModule, compiler: Callable[[GraphModule], Compiled], *, channels_last: bool = True
) -> Compiled:
    """Return ``graph_module`` compiled by ``compiler``; values that depend on state alone are computed once.

    ``channels_last``: images may be laid out channels last.

    The graph has no gradients, and its parameters and buffers are placeholders with the names that capture
    gives.
    """
    graph, _ = copied_graph(graph_module)
    copy = make_graph_module(graph_module, graph, deferred=True)
    parts = run_passes("freeze", FREEZE, Freezing(copy, channels_last), text).parts
    if parts is None:
        return compiler(graph_module)
    watch_optimizers()
    run = compiler(parts.rest)
    result = Frozen(parts, run, lambda: compiler(graph_module))
    vars(result)["lowered"] = getattr(run, "lowered", None)
    return result


@dataclass(eq=False)
class LastStep:
    """``step`` becomes another object after each step of any optimizer, so that stored values become invalid."""

    step: object


LAST = LastStep(object())


def note_step(_optimizer: object, _args: object, _kwargs: object) -> None:
    """Record an optimizer step; ``watch_optimizers`` makes it a hook of all optimizers.

    The hook reads nothing, so a compiled optimizer step that calls the hook gets no guards from it.
    """
    LAST.step = object()


@lru_cache(maxsize=1)
def watch_optimizers() -> None:
    """Record every optimizer step of this process from now on; ``freeze`` calls this for its first graph."""
    register_optimizer_step_post_hook(note_step)
