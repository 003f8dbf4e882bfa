"""Graph modules whose source text goes when they go.

torch keeps the text of every graph's generated code, for tracebacks, under a name that is used once: in a table of its
own and in ``linecache``. Nothing ever takes it out, so a process that compiles for long grows. ``make_graph_module`` makes the
same module and takes the text out when its code object is gone (a traceback keeps that alive).
"""

from __future__ import annotations

import linecache
import weakref
from typing import Any

from torch.fx import Graph, GraphModule
from torch.nn import Module

from fxstack_interchange import torch_compat


def make_graph_module(
    root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule"
) -> GraphModule:
    """``GraphModule(root, graph, class_name)``."""
    made = GraphModule(root, graph, class_name)
    code = type(made).forward.__code__
    weakref.finalize(code, _forget, code.co_filename).atexit = False
    return made


def _forget(name: str) -> None:
    torch_compat.graph_module_loader.eval_cache.pop(name, None)
    linecache.cache.pop(name, None)
