"""The metadata of nodes: the stack trace, the module stack, and the tags of the enclosing region."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fxstack_capture.torch_side.recording.locations import Frame, Locations


class Annotations:
    def __init__(self) -> None:
        self._locations = Locations()
        self._tags: dict[str, object] = {}

    def annotate(self, node: torch.fx.Node, stack: tuple[Frame, ...], modules: dict[str, Any]) -> None:
        node.meta["stack_trace"] = self._locations.text(stack)
        if modules:
            node.meta["nn_module_stack"] = modules
        node.meta["source_fn_stack"] = [(node.name, node.target)]
        node.meta.update(self._tags)

    @contextmanager
    def tagged(self, key: str, tag: object) -> Iterator[None]:
        """Tag every node that is added inside the context."""
        before = self._tags
        self._tags = {**before, key: tag}
        try:
            yield
        finally:
            self._tags = before
