"""Plots of a comparison: memory over a step, memory against recomputation, the graph around the cut.

They need matplotlib: ``pip install fxstack-partition[plots]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.fx import Node

from fxstack_interchange import OutputKind, Partition
from fxstack_partition.optional import matplotlib_figure, networkx
from fxstack_partition.report.compare import Comparison, Row

if TYPE_CHECKING:  # its import takes 80 ms, see optional.py
    import networkx as nx

_MB = 1e6


def _axes(size: tuple[float, float], title: str, **labels: str) -> tuple[Any, Any]:
    """Return a new figure of ``size`` in inches, and its axes. ``labels``: for example ``xlabel``."""
    figure = matplotlib_figure(size)
    axes = figure.subplots()
    axes.set(title=title, **labels)
    return figure, axes


def plot_timeline(comparison: Comparison, title: str = "") -> Any:
    """Return a figure of the bytes alive at each operator, with one line for each partitioner.

    Raises:
        ImportError: if matplotlib is not installed.
    """
    figure, axes = _axes((9, 4), title, xlabel="operator (dotted: the backward begins)", ylabel="MB alive")
    for row in _rows_with_partition(comparison):
        sizes = [moment.bytes / _MB for moment in row.timeline.moments]
        (line,) = axes.plot(sizes, label=row.label, linewidth=1)
        forward = sum(moment.stage == "forward" for moment in row.timeline.moments)
        axes.axvline(forward, color=line.get_color(), linewidth=0.5, linestyle=":")
    axes.legend()
    return figure


def plot_pareto(comparison: Comparison, title: str = "") -> Any:
    """Return a figure of simulated peak against recomputed operations, with one point for each row.

    Raises:
        ImportError: if matplotlib is not installed.
    """
    figure, axes = _axes((6, 4), title, xlabel="recomputed MFLOP", ylabel="simulated peak, MB")
    for row in _rows_with_partition(comparison):
        point = (row.recomputed_flops / 1e6, row.peak / _MB)
        axes.plot(*point, "o")
        axes.annotate(row.label, point, xytext=(4, 4), textcoords="offset points", fontsize=8)
    return figure


def plot_cut(partition: Partition, title: str = "", limit: int = 40) -> Any:
    """Return a figure of the largest saved values with their producers and their readers in the backward.

    Raises:
        ImportError: if matplotlib is not installed.
    """
    graph = cut_graph(partition, limit)
    layers: dict[int, list[str]] = {}
    for name, data in graph.nodes(data=True):
        layers.setdefault(data["layer"], []).append(name)
    height = max(3, 0.3 * max(map(len, layers.values()), default=1))
    figure, axes = _axes((9, height), title or "forward | saved | backward")
    position = networkx().multipartite_layout(graph, subset_key="layer")
    colors = ["tab:blue", "tab:orange", "tab:green"]
    for start, end in graph.edges:
        axes.plot(*zip(position[start], position[end], strict=True), color="0.7", linewidth=0.7)
    for name, (x, y) in position.items():
        layer = graph.nodes[name]["layer"]
        axes.text(x, y, graph.nodes[name]["text"], fontsize=7, color=colors[layer], ha="center")
    axes.set_axis_off()
    return figure


def cut_graph(partition: Partition, limit: int) -> nx.DiGraph:
    """Return the graph around the cut: producers (layer 0), saved values (1), readers (2)."""
    graph: nx.DiGraph = networkx().DiGraph()
    output: Any = partition.forward.graph_module.graph.output_node().args[0]
    specs = partition.forward.signature.outputs
    saved = [n for n, s in zip(output, specs, strict=True) if s.kind is OutputKind.SAVED]
    received = partition.backward.graph_module.graph.find_nodes(op="placeholder")
    pairs = [
        (node, reader) for node, reader in zip(saved, received, strict=False) if node.op == "call_function"
    ]
    pairs.sort(key=lambda pair: -_numel(pair[0]))
    for node, reader in pairs[:limit]:
        name = f"saved {node.name}"
        graph.add_node(name, layer=1, text=node.name)
        for maker in node.all_input_nodes:
            graph.add_node(f"forward {maker.name}", layer=0, text=maker.name)
            graph.add_edge(f"forward {maker.name}", name)
        for user in reader.users:
            graph.add_node(f"backward {user.name}", layer=2, text=user.name)
            graph.add_edge(name, f"backward {user.name}")
    return graph


def _numel(node: Node) -> int:
    """Return the number of elements of a value, with 1 for symbolic sizes. It sorts the values of ``plot_cut``."""
    value = node.meta.get("val")
    sizes = getattr(value, "shape", ())
    total = 1
    for size in sizes:
        total *= size if isinstance(size, int) else 1
    return total


def _rows_with_partition(comparison: Comparison) -> list[Row]:
    return [row for row in comparison.rows if row.partition is not None]
