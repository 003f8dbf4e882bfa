"""Selective checkpoints: the decisions of the program's policy about operators, as tags of the graph's nodes.

The trace calls the policy for every ATen operator of a node, in order, as eager does in the forward. The
interpreter runs the policy, so guards cover the objects that the policy reads, and changes of its counters
are side effects. A node of several operators gets the strongest decision: if one result must be saved, the
node is saved.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import checkpoint as _checkpoint

from fxstack_capture.breaks import GraphBreak, graph_break
from fxstack_capture.torch_compat import TorchDispatchMode, tree_leaves
from fxstack_capture.trace.state import Args, Calls, Kwargs
from fxstack_interchange.format.metadata import recompute_tag

Policy = _checkpoint.CheckpointPolicy

_TAGS: dict[object, str] = {
    getattr(Policy, policy): tag
    for policy, tag in (
        ("MUST_SAVE", "must_save"),
        ("MUST_CPU_OFFLOAD", "must_save"),
        ("PREFER_SAVE", "prefer_save"),
        ("PREFER_CPU_OFFLOAD", "prefer_save"),
        ("MUST_RECOMPUTE", "must_recompute"),
        ("PREFER_RECOMPUTE", "prefer_recompute"),
    )
    if hasattr(Policy, policy)
} | {True: "must_save", False: "prefer_recompute"}

_SAVES = ("must_save", "prefer_save")
_STRENGTH = (*_SAVES, "must_recompute", "prefer_recompute")

_CONTEXT = _checkpoint.SelectiveCheckpointContext
_TELLS_OUTPUT = "op_output" in inspect.signature(_CONTEXT.__init__).parameters


@contextmanager
def selecting(tracer: Any, policy: Callable[..., Any], *, draws_again: bool = False) -> Iterator[None]:
    """Tag the nodes inside the context, which traces the function of a checkpoint, by the answers of ``policy``.

    ``draws_again``: the recomputation must draw new random numbers, so an operator that draws breaks the
    graph.
    """
    before, tracer.selection = (
        tracer.selection,
        Selection(tracer.trace.calls, policy, draws_again=draws_again),
    )
    try:
        yield
    finally:
        tracer.selection = before


@contextmanager
def choosing(tracer: Any) -> Iterator[None]:
    """Mark that the program's ``context_fn`` of a checkpoint runs (``is_choosing``)."""
    before, tracer.choosing = tracer.choosing, True
    try:
        yield
    finally:
        tracer.choosing = before


def is_choosing(tracer: Any) -> bool:
    """Return whether the trace is running the ``context_fn`` of a checkpoint, which may make contexts with a policy."""
    return bool(tracer.choosing)


class Selection(TorchDispatchMode):
    """The policy of one checkpoint: a dispatch mode that collects the operators of a call, for ``tag``."""

    def __init__(self, calls: Calls, policy: Callable[..., Any], *, draws_again: bool) -> None:
        super().__init__()
        self._draws_again = draws_again
        self._calls = calls
        self._policy = policy
        self._seen: list[tuple[Any, Any, Any, Any]] = []
        self._saved: set[int] = set()
        self._results: list[object] = []
        """Keeps the saved results alive, so that no other tensor gets an address of ``_saved``."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if self._draws_again and torch.Tag.nondeterministic_seeded in func.tags:
            raise graph_break("unsupported-call", "a checkpoint that draws anew what it recomputes")
        if func not in _checkpoint.SAC_IGNORED_OPS:
            self._seen.append((func, args, kwargs, out))
        return out

    def tag(self, node: torch.fx.Node) -> None:
        """Tag ``node`` with the strongest of the policy's decisions about its operators, and forget the operators."""
        seen, self._seen = self._seen, []
        answers = {self._ask(*each) for each in seen} or {"prefer_recompute"}
        node.meta["recompute"] = recompute_tag(min(answers, key=_STRENGTH.index))

    def _ask(self, func: Any, args: Args, kwargs: Kwargs, out: Any) -> str:
        """Return the tag of the policy's decision about one operator. Break the graph at a write to a saved tensor."""
        if func._schema.is_mutable and not self._saved.isdisjoint(_memory((args, kwargs))):
            raise _changes_what_is_saved(func)
        output = {"op_output": out} if _TELLS_OUTPUT else {}
        context = self._calls.call(_CONTEXT, (), {"is_recompute": False, **output})
        tag = _TAGS.get(self._calls.call(self._policy, (context, func, *args), kwargs))
        if tag is None:
            raise graph_break("unsupported-call", "a checkpoint whose policy gives no policy")
        if tag in _SAVES:
            if func._schema.is_mutable:
                raise _changes_what_is_saved(func)  # eager saves before the version increases
            self._results.append(out)
            self._saved |= _memory(out)
        return tag


def _changes_what_is_saved(func: object) -> GraphBreak:
    """Return a graph break: eager raises in the backward, or continues with the changed tensor."""
    return graph_break("unsupported-call", f"{func}, which writes to what a policy saved")


def _memory(values: object) -> set[int]:
    """Return the storages of all tensors among ``values``."""
    leaves = (leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))
    return {leaf.untyped_storage()._cdata for leaf in leaves}
