"""``partition`` cuts a joint graph with a partitioner, and checks the result of a partitioner from outside the package."""

from __future__ import annotations

from fxstack_interchange import Partition, StageGraph
from fxstack_interchange.collector import paused_collector
from fxstack_partition.extraction.check import check_partition
from fxstack_partition.options import PartitionOptions
from fxstack_partition.ordering.plan import PartitionError
from fxstack_partition.registry import REGISTRY, Partitioner

_DEFAULTS = PartitionOptions()


def partition(
    joint: StageGraph, name: str | Partitioner = "min_cut", options: PartitionOptions = _DEFAULTS
) -> Partition:
    """Cut ``joint`` into a forward and a backward graph.

    ``name`` is a registered name or a partitioner function. The result of a function from outside this
    package is checked.

    Raises:
        TypeError: if ``joint`` is no stage graph, or ``name`` neither a name nor a function.
        UnknownPartitionerError: if no partitioner has this name.
        JointGraphError: if ``joint`` is not a well-formed joint graph.
        PartitionError: if the partitioner chose saved values that cannot work, or returned graphs that are no
            partition of ``joint``. The text names the node and the rule.
    """
    if not isinstance(joint, StageGraph):
        msg = f"expected a joint StageGraph, got {type(joint).__name__}; JointGraph.from_aot converts torch's joint graph"
        raise TypeError(msg)
    chosen = REGISTRY.get(name) if isinstance(name, str) else name
    if not callable(chosen):
        msg = f"a partitioner is a name or a function of a joint graph and options, not {name!r}"
        raise TypeError(msg)
    with paused_collector():
        part = chosen(joint, options)
    if not str(getattr(chosen, "__module__", "")).startswith("fxstack_partition."):
        if not isinstance(part, Partition):
            msg = f"the partitioner {chosen!r} returned {part!r}, which is no Partition; build one with fxstack_partition.extract"
            raise PartitionError(msg)
        check_partition(joint, part)
    return part
