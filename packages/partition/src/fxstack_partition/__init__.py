"""Joint graphs cut into forward and backward: what a training step saves and what it recomputes."""

from fxstack_partition.api import partition
from fxstack_partition.extract import PartitionError, extract
from fxstack_partition.joint import JointFacts, JointGraphError, analyze
from fxstack_partition.options import PartitionOptions
from fxstack_partition.partitioners import min_cut, save_all
from fxstack_partition.registry import Partitioner, UnknownPartitionerError, register

__all__ = [
    "JointFacts",
    "JointGraphError",
    "PartitionError",
    "PartitionOptions",
    "Partitioner",
    "UnknownPartitionerError",
    "analyze",
    "extract",
    "min_cut",
    "partition",
    "register",
    "save_all",
]
