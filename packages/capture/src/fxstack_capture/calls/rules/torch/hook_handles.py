"""``RemovableHandle``: handles of hooks get ids of their own.

Torch counts handles in an attribute of a class of its own, which is not guarded: compiled code would write the same
number at every call, and turn the count back. Ids that are taken while tracing are larger than any that torch counts to;
the dictionaries that they are keys of are guarded, so one is never taken where it is in use.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any

from torch.utils.hooks import RemovableHandle

from fxstack_capture.calls.table import RuleTable
from fxstack_capture.trace.state import Trace

RULES: RuleTable = RuleTable()

_IDS = itertools.count(1 << 40)


@RULES.rule(RemovableHandle.__init__)
def _make(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    trace.interp.call_function(_init, (next(_IDS), *args), kwargs)


def _init(number: int, self: Any, hooks_dict: Any, *, extra_dict: Any = None) -> None:
    """What torch's method does, with this number."""
    self.hooks_dict_ref = weakref.ref(hooks_dict)
    self.id = number
    self.extra_dict_ref = ()
    if isinstance(extra_dict, dict):
        self.extra_dict_ref = (weakref.ref(extra_dict),)
    elif isinstance(extra_dict, list):
        self.extra_dict_ref = tuple(weakref.ref(d) for d in extra_dict)
