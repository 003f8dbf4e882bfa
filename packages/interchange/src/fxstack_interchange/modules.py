"""Graph modules whose source text is freed together with them.

torch keeps the source text of the generated code of every graph, for tracebacks. It keeps the text under a
file name that no other graph uses, in a table of its own and in ``linecache``. torch never removes the text,
so the memory of a long-running process that compiles many graphs grows. ``make_graph_module`` makes the same
module and removes the text when the module's code object is freed. A traceback keeps the code object alive,
so it keeps the text too.
"""

from __future__ import annotations

import linecache
import weakref
from typing import Any

from torch.fx import Graph, GraphModule, Node
from torch.nn import Module

from fxstack_interchange import torch_compat


class _DeferredModule(torch_compat.LazyGraphModule):
    """A graph module that generates its code when the module is first called, printed or pickled."""

    def _real_recompile(self) -> Any:
        code = super()._real_recompile()
        _free_text_with_code(self)
        return code


def make_graph_module(
    root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule", *, deferred: bool = False
) -> GraphModule:
    """Return ``GraphModule(root, graph, class_name)`` whose source text is freed with its code object.

    Packages call this in place of the constructor. ``deferred``: generate the code when it is first needed. Generating
    takes longer than copying the graph, and nobody calls most of the graphs between two passes.
    """
    if deferred:
        return _DeferredModule(root, graph, class_name)
    module = GraphModule(root, graph, class_name)
    _free_text_with_code(module)
    return module


def _free_text_with_code(module: GraphModule) -> None:
    code = type(module).forward.__code__
    weakref.finalize(code, _forget, code.co_filename).atexit = False


def copied_graph(module: GraphModule) -> tuple[Graph, dict[Node, Node]]:
    """Return a copy of the graph of ``module``, with the metadata of its nodes, and a map from old to new nodes."""
    graph = Graph()
    copies: dict[Node, Node] = {}
    output = graph.output(graph.graph_copy(module.graph, copies))
    output.meta = dict(module.graph.output_node().meta)
    return graph, copies


def _forget(name: str) -> None:
    torch_compat.graph_module_loader.eval_cache.pop(name, None)
    linecache.cache.pop(name, None)
