"""The passes of this package, by stage: ``partition`` for minimum cuts; ``budget`` and ``ilp`` within a budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fxstack_interchange.passes import Pass
from fxstack_partition.budgets.budget import BUDGET
from fxstack_partition.budgets.ilp import ILP
from fxstack_partition.extraction.passes import MIN_CUT

STAGES: Final[Mapping[str, tuple[Pass[Any], ...]]] = {"partition": MIN_CUT, "budget": BUDGET, "ilp": ILP}
"""The passes of each stage, in order."""
