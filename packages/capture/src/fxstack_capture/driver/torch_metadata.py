"""Metadata of captured graphs as compilers for torch read it: tags for recomputation, names of parameters.

A backend that wants fake inputs reads the format of this project (``fxstack_interchange``), and every other
backend reads what torch's compiler writes.
"""

from __future__ import annotations

from typing import Any

from torch.utils.checkpoint import CheckpointPolicy

from fxstack_capture.guards.accesses import RealFrame, read
from fxstack_capture.sources import Source
from fxstack_capture.trace.records import CapturedCode


def write_metadata(captured: CapturedCode, frame: RealFrame) -> None:
    """Write what torch's compiler writes on a graph that it gives to a backend."""
    graph_module: Any = captured.graph_module
    for node in graph_module.graph.nodes:
        tag = node.meta.get("recompute")
        if isinstance(tag, str):
            node.meta["recompute"] = CheckpointPolicy[tag.upper()]
            node.meta.setdefault("ac_graph_id", 0)
    names = [node.name for node in graph_module.graph.find_nodes(op="placeholder")]
    graph_module.meta["dynamo_flat_name_to_original_fqn"] = _original_names(names, captured.inputs, frame)
    graph_module._param_name_to_source = dict(zip(names, captured.inputs, strict=True))


def _original_names(names: list[str], inputs: tuple[Source, ...], frame: RealFrame) -> dict[str, str]:
    """Return the qualified names of parameters and buffers by the names of their placeholders."""
    owner = frame.arguments.get("self")
    found: dict[int, str] = {}
    if hasattr(owner, "named_parameters") and hasattr(owner, "named_buffers"):
        found = {id(tensor): name for name, tensor in (*owner.named_parameters(), *owner.named_buffers())}
    originals = (found.get(id(read(source, frame))) for source in inputs)
    return {name: original for name, original in zip(names, originals, strict=True) if original is not None}
