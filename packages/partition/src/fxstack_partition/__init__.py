"""Cut joint graphs into forward and backward: decide which values a training step saves or recomputes.

``api.partition`` runs a partitioner, ``registry`` finds partitioners by name, and ``partitioners`` holds the
simplest partitioners. The package imports ``fxstack_interchange``, networkx, and on demand SciPy and matplotlib. Begin
with ``api``.
"""

from fxstack_partition.api import partition
from fxstack_partition.budgets.budget import BudgetError, budget
from fxstack_partition.budgets.ilp import ilp
from fxstack_partition.budgets.measure import Measured
from fxstack_partition.extraction.check import check_partition
from fxstack_partition.extraction.extract import PartitionError, extract
from fxstack_partition.joint.joint import JointFacts, JointGraphError, analyze
from fxstack_partition.options import DEVICES, Device, PartitionOptions, StageMemory
from fxstack_partition.ordering.simulate import Moment, Timeline, simulate
from fxstack_partition.partitioners import min_cut, sac, save_all
from fxstack_partition.policy.modules import by_module
from fxstack_partition.registry import Partitioner, UnknownPartitionerError, register
from fxstack_partition.report.compare import Comparison, Row, compare
from fxstack_partition.report.explain import Explanation, explain
from fxstack_partition.torch_interop.from_torch import JointGraph, from_partition_fn
from fxstack_partition.torch_interop.to_torch import as_partition_fn

__all__ = [
    "DEVICES",
    "BudgetError",
    "Comparison",
    "Device",
    "Explanation",
    "JointFacts",
    "JointGraph",
    "JointGraphError",
    "Measured",
    "Moment",
    "PartitionError",
    "PartitionOptions",
    "Partitioner",
    "Row",
    "StageMemory",
    "Timeline",
    "UnknownPartitionerError",
    "analyze",
    "as_partition_fn",
    "budget",
    "by_module",
    "check_partition",
    "compare",
    "explain",
    "extract",
    "from_partition_fn",
    "ilp",
    "min_cut",
    "partition",
    "register",
    "sac",
    "save_all",
    "simulate",
]
