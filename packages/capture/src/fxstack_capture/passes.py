"""The passes of capture: the attempts to trace a frame, and the passes that make replacement code from its
trace.

The outcome of an attempt selects the next attempt. All other passes have a fixed order. In the examples,
``attempts`` compiles a call. It prints each attempt with its graph, or with the reason why it ended.
``after`` prints the state after one pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fxstack_capture.driver.attempts.steps import STEPS
from fxstack_capture.driver.replacement import GUARDING, WRITING
from fxstack_interchange.passes import Pass

STAGES: Final[Mapping[str, tuple[Pass[Any], ...]]] = {"capture": (*STEPS.values(), *GUARDING, *WRITING)}
"""The passes of each stage of the package, in the order in which they run."""
