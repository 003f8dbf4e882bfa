"""The metadata of nodes: the stack trace, the module stack, and the tag of the enclosing checkpoint."""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import traceback

from fxstack_interchange.format.metadata import recompute_tag


class Annotations:
    """Writes the metadata of nodes for one trace, and knows the checkpoint of each node."""

    def __init__(self) -> None:
        self._locations = Locations()
        self._checkpoint: tuple[int, str] | None = None
        """The number and the tag of the innermost checkpoint. Numbers increase in the order of entry."""
        self._entered = 0
        self._numbers: dict[torch.fx.Node, int] = {}
        self._results: dict[torch.fx.Node, str] = {}
        """The tags that the results of checkpoints had inside of their checkpoints."""

    def annotate(self, node: torch.fx.Node, stack: tuple[Frame, ...], modules: dict[str, Any]) -> None:
        """Write the stack trace, the module stack and the tag of the enclosing checkpoint to a node."""
        node.meta["stack_trace"] = self._locations.text(stack)
        if modules:
            node.meta["nn_module_stack"] = modules
        node.meta["source_fn_stack"] = [(node.name, node.target)]
        if self._checkpoint is not None:
            self._numbers[node], node.meta["recompute"] = self._checkpoint

    @contextmanager
    def checkpoint(self, tag: str) -> Iterator[None]:
        """Tag every node that is added inside the context, the trace of a checkpointed function."""
        before = self._checkpoint
        self._entered += 1
        self._checkpoint = self._entered, recompute_tag(tag)
        try:
            yield
        finally:
            self._checkpoint = before

    def leave_checkpoint(self, node: torch.fx.Node) -> None:
        """Remove the tag of a node whose value is a result of its checkpoint, when the checkpoint ends."""
        tag = node.meta.pop("recompute", None)
        if tag is not None:
            self._results[node] = tag

    def checkpointed(self, nodes: Iterable[torch.fx.Node]) -> dict[str, tuple[int, str]]:
        """Return the number and the tag of the checkpoint of each node in a checkpoint, by the name of the node.

        A result of a checkpoint has the tag from inside of the checkpoint.
        """
        return {
            node.name: (self._numbers[node], node.meta.get("recompute") or self._results[node])
            for node in nodes
            if node in self._numbers
        }


def copy_custom(node: torch.fx.Node, registry: Any) -> None:
    """Copy the annotations of ``torch.fx.traceback.annotate`` around the program's call to its node."""
    # ``annotate`` changes a dictionary of torch. If the program has called ``annotate``, the dictionary has a proxy.
    meta = registry.by_original.get(id(traceback.current_meta))
    if meta is not None and (custom := dict.get(meta.proxy, "custom")):
        node.meta["custom"] = dict(custom)


Frame = tuple[str, int, str]


class Locations:
    """Formats stacks for ``meta["stack_trace"]``. The text of each frame is cached."""

    def __init__(self) -> None:
        self._frames: dict[Frame, str] = {}

    def text(self, stack: tuple[Frame, ...]) -> str:
        """Return the text of a stack, outermost frame first."""
        return "".join([self._frames.get(frame) or self._format(frame) for frame in stack])

    def _format(self, frame: Frame) -> str:
        """Return the traceback text of a frame, which is cached because many nodes share their frames."""
        file, line, function = frame
        code = linecache.getline(file, line).strip()
        text = f'  File "{file}", line {line}, in {function}\n' + (f"    {code}\n" if code else "")
        self._frames[frame] = text
        return text
