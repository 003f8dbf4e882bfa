"""``partition``: the one call that cuts a joint graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxstack_interchange.collector import paused_collector
from fxstack_partition.check import check_partition
from fxstack_partition.options import PartitionOptions
from fxstack_partition.registry import REGISTRY, Partitioner

if TYPE_CHECKING:
    from fxstack_interchange import Partition, StageGraph

_DEFAULTS = PartitionOptions()


def partition(
    joint: StageGraph,
    name: str | Partitioner = "min_cut",
    options: PartitionOptions = _DEFAULTS,
) -> Partition:
    """Cut ``joint`` into a forward and a backward graph.

    ``name`` is a registered name or the function itself. What a partitioner from elsewhere returns is checked.

    Raises:
        UnknownPartitionerError: no partitioner has this name.
        JointGraphError: ``joint`` is not a well-formed joint graph.
        PartitionError: the partitioner chose a set of saved values that cannot work, or returned
            graphs that are no partition of ``joint``; names the node and the rule.
    """
    chosen = REGISTRY.get(name) if isinstance(name, str) else name
    with paused_collector():
        part = chosen(joint, options)
    if not str(getattr(chosen, "__module__", "")).startswith("fxstack_partition."):
        check_partition(joint, part)
    return part
