"""A compiled graph whose constant part is computed when the model's tensors are not those that it was computed from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Interpreter

from fxstack_inductor.freezing.constants import constant_nodes, split
from fxstack_inductor.freezing.norms import fold_norms
from fxstack_inductor.freezing.packing import pack_products
from fxstack_inductor.freezing.steps import LAST, watch_optimizers
from fxstack_interchange.modules import make_graph_module

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.fx import GraphModule

    from fxstack_inductor.freezing.constants import Split

    Compiled = Callable[..., tuple[Any, ...]]
    Stamp = tuple[object, tuple[tuple[int, int], ...]]


# Limits: a write through .data, or by a fused optimizer's operator that is called by itself, is not seen.
# Folded and packed weights are in memory twice, symbolic batch sizes have no packed products, and weights of
# convolutions are not packed (slower in some layouts, a gain of 5% in others). Such programs are not kept on
# disk.

MOST_MISSES = 8
"""After so many calls in a row with other weights the graph is compiled as it is: its weights are arguments, or being trained."""


@dataclass(frozen=True, slots=True)
class Folded:
    """Results of the constant part. ``state`` keeps the memory that they were made from, so that its address stays its own.

    ``copies`` are what the tensors that are compared by value were.
    """

    stamp: Stamp
    state: tuple[torch.Tensor, ...]
    copies: tuple[torch.Tensor, ...]
    values: tuple[torch.Tensor, ...]


@dataclass(eq=False)
class Frozen:
    """The callable. A tensor counts as unchanged while its address and its version are the same (running statistics: also their
    values), and no optimizer has made a step.

    So writing to a parameter through ``.data`` is not seen; assigning to ``.data``, and every in-place operator on it, is.
    """

    parts: Split
    run: Compiled
    plain: Callable[[], Compiled]
    """Compiles the graph as it is, for tensors that have no version (of ``torch.inference_mode``)."""
    folded: Folded | None = None
    misses: int = 0
    """Calls in a row that each found other weights."""
    unfrozen: list[Compiled] = field(default_factory=list)

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
            # Calls at the same time may each compute it; each uses its own.
            folded = self.folded = self._fold(stamp, state, compared)
        else:
            self.folded = None
            return self._unfrozen()(*args)
        return self.run(*[args[k] for k in self.parts.kept], *folded.values)

    def _fold(self, stamp: Stamp, state: Sequence[torch.Tensor], compared: Sequence[torch.Tensor]) -> Folded:
        with torch.no_grad():
            kept = tuple(t.detach() for t in state)
            copies = tuple(t.detach().clone() for t in compared)
            interpreter = Interpreter(self.parts.constants)
            interpreter.extra_traceback = False
            return Folded(stamp, kept, copies, tuple(interpreter.run(*kept)))

    def _unfrozen(self) -> Compiled:
        if not self.unfrozen:
            self.unfrozen.append(self.plain())
        return self.unfrozen[0]


def _equal(found: Sequence[torch.Tensor], kept: Sequence[torch.Tensor]) -> bool:
    return all(map(torch.equal, found, kept))


def frozen(graph_module: GraphModule, compiler: Callable[[GraphModule], Compiled]) -> Compiled:
    """``graph_module`` compiled by ``compiler``, with what follows from the model's state computed once.

    It has no gradients, and its parameters and buffers are placeholders named as capture names them.
    """
    copy = make_graph_module(graph_module, _copy(graph_module))
    for rewrite in (fold_norms, pack_products):
        rewrite(copy.graph, constant_nodes(copy))
    parts = split(copy)
    if parts is None:
        return compiler(graph_module)
    watch_optimizers()
    run = compiler(parts.rest)
    made = Frozen(parts, run, lambda: compiler(graph_module))
    vars(made)["lowered"] = getattr(run, "lowered", None)
    return made


def _copy(graph_module: GraphModule) -> torch.fx.Graph:
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    result = graph.graph_copy(graph_module.graph, copies)
    (output,) = graph_module.graph.find_nodes(op="output")
    graph.output(result).meta.update(output.meta)
    for old, new in copies.items():
        new.meta = dict(old.meta)
    return graph


__all__ = ["Frozen", "frozen"]
