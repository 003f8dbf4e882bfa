"""What the wrapper around compiled graphs is made from: the captured graph, and the records of what it does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fxstack_functionalize.metadata import GraphInfo
    from fxstack_functionalize.torch_compat import TreeSpec
    from fxstack_functionalize.tracing.inputs import Captured


@dataclass(frozen=True, slots=True)
class Shell:
    """Everything that a wrapper needs beside the compiled graphs; ``out_spec`` is the nest of the user's outputs."""

    captured: Captured
    info: GraphInfo
    out_spec: TreeSpec
