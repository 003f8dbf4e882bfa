"""The passes of this package, by stage, in the order in which the stages run.

``freeze`` runs for frozen weights. ``lower`` and ``schedule`` run for all graphs, several times where matrix products
are tried as kernels. Then comes ``c`` or ``triton``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fxstack_inductor.freezing.frozen import FREEZE
from fxstack_inductor.lower.passes import LOWER
from fxstack_inductor.schedule.plan import SCHEDULE
from fxstack_inductor.targets.all_targets import TARGETS
from fxstack_interchange.passes import Pass

STAGES: Final[Mapping[str, tuple[Pass[Any], ...]]] = {
    "freeze": FREEZE,
    "lower": LOWER,
    "schedule": SCHEDULE,
    **{target.name: target.passes for target in TARGETS},
}
"""The passes of each stage, in order."""
