"""Anomaly mode: a graph that runs operator by operator, so that an error names the operator and the line of its forward.

Eager's check asks every gradient of a backward for NaN, of which a compiled backward has the last only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Interpreter
from torch.fx.traceback import preserve_node_meta

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import GraphModule

is_on: Callable[[], bool] = torch.is_anomaly_enabled


def by_operators(graph_module: GraphModule) -> Callable[..., Any]:
    """Return ``graph_module`` in eager; autograd's nodes remember the lines that its nodes come from."""

    def call(*args: object) -> Any:
        with preserve_node_meta():
            return Interpreter(graph_module).run(*args)

    return call
