"""Default dictionaries that a call fills with the state of tensors, such as ``Optimizer.state`` in the first step.

The graph of a call that creates state fits no later call. So the call runs in plain Python, as the first call of a lazy
module does, and the next call is compiled: a step of an optimizer is compiled once.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.guards.records import Guard, LengthIs
from fxstack_capture.trace.state import Calls

# Limits: ``explain`` and ``export`` trace the first call. So does a function of which four calls in succession have created
# state, for example one that gets another new optimizer in each call.


def demand_present(calls: Calls, states: defaultdict[Any, Any], key: object) -> None:
    """Defer the compilation if ``states``, a dictionary of the program, has no state of the tensor ``key`` yet.

    Raises:
        GraphBreak: the frame runs in plain Python as long as the dictionary has its present length.
    """
    objects = calls.objects
    if not calls.trace.may_defer or not isinstance(key, torch.Tensor):
        return
    if not objects.is_preexisting(states) or not objects.is_preexisting(key):
        return
    # The table of the proxy has the hashes of the originals, so the original is asked.
    original = objects.original_of(states)
    if objects.original_of(key) in original or len(states) != len(original):
        return
    reason = graph_break(
        "plain-python", "the call that creates the state of an optimizer or of another tensor"
    )
    reason.until = Guard(objects.registry.by_proxy[id(states)].source, LengthIs(len(original)))
    raise reason
