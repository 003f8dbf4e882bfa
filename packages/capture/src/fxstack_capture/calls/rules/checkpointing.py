"""``torch.utils.checkpoint``: the function is inlined, and its nodes say that they want to be recomputed.

What eager achieves with saved-tensor hooks is left to the partitioner, which reads the nodes' ``recompute``
tag. Random operators keep what they drew, so no generator state is put back. Variants with effects of their
own (reentrant, ``context_fn``, fresh random numbers, debugging) end the graph.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import checkpoint as _checkpoint

from fxstack_capture.calls.table import RuleTable

if TYPE_CHECKING:
    from fxstack_capture.trace import Trace

RULES: RuleTable = RuleTable()

TAG = "must_recompute"

_SIGNATURE = inspect.signature(_checkpoint.checkpoint)


@RULES.rule(_checkpoint.checkpoint)
def checkpoint(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Non-reentrant checkpoints with default settings; others are left to torch's own code."""
    if not args or not _is_ordinary(trace, kwargs):
        whole = trace.world.load_attr(_checkpoint.checkpoint, "__wrapped__")
        return trace.calls.call(whole, args, kwargs)
    function, *inputs = args
    passed = {name: value for name, value in kwargs.items() if name not in _OWN}
    if not torch.is_grad_enabled():
        return trace.calls.call(function, tuple(inputs), passed)
    with trace.torch.tagged("recompute", TAG):
        result = trace.calls.call(function, tuple(inputs), passed)
    trace.torch.untag("recompute", result)
    return result


_OWN = {name for name, p in _SIGNATURE.parameters.items() if p.kind is p.KEYWORD_ONLY}
_OWN.add("preserve_rng_state")


def _is_ordinary(trace: Trace, kwargs: dict[str, Any]) -> bool:
    return (
        kwargs.get("use_reentrant") is False
        and kwargs.get("preserve_rng_state", True) is True
        and kwargs.get("context_fn", _checkpoint.noop_context_fn) is _checkpoint.noop_context_fn
        and kwargs.get("determinism_check", "default") in {"default", "none"}
        and not kwargs.get("debug")
        and trace.world.load_attr(_checkpoint, "_checkpoint_debug_enabled") is None
    )
