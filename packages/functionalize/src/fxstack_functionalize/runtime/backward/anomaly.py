"""Anomaly mode: run a graph operator by operator, so that an error names the operator and its forward line.

Eager checks every gradient of a backward for NaN; a compiled backward would only show its last gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter
from torch.fx.traceback import preserve_node_meta

is_on: Callable[[], bool] = torch.is_anomaly_enabled


def by_operators(graph_module: GraphModule) -> Callable[..., Any]:
    """Return ``graph_module`` as an eager function whose autograd nodes record the lines of its nodes."""

    def call(*args: object) -> Any:
        with preserve_node_meta():
            return Interpreter(graph_module).run(*args)

    return call
