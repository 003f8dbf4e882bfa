"""The input of the wrapper generator: the captured graph and the records of its inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass

from fxstack_functionalize.metadata.records import GraphInfo
from fxstack_functionalize.torch_compat import TreeSpec
from fxstack_functionalize.tracing.inputs import Captured


@dataclass(frozen=True, slots=True)
class Shell:
    """All data of a wrapper except compiled graphs. ``out_spec``: pytree structure of user outputs."""

    captured: Captured
    info: GraphInfo
    out_spec: TreeSpec
