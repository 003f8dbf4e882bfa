"""``RemovableHandle``: handles of hooks get ids of this tracer.

Torch counts handles in a class attribute. The attribute is not guarded: compiled code would write the same
number in every call and so reset the count. Ids from tracing are larger than any count of torch. The ids are
keys of dictionaries, and these dictionaries are guarded, so an id never collides with an id in use.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any

from torch.utils.hooks import RemovableHandle

from fxstack_capture.calls.rules import RULES
from fxstack_capture.trace.state import Args, Kwargs, Trace

_IDS = itertools.count(1 << 40)


@RULES.rule(RemovableHandle.__init__)
def _make(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> None:
    trace.interp.call_function(_init, (next(_IDS), *args), kwargs)


def _init(number: int, self: Any, hooks_dict: Any, *, extra_dict: Any = None) -> None:
    """``RemovableHandle.__init__`` with this number as the id."""
    self.hooks_dict_ref = weakref.ref(hooks_dict)
    self.id = number
    self.extra_dict_ref = ()
    if isinstance(extra_dict, dict):
        self.extra_dict_ref = (weakref.ref(extra_dict),)
    elif isinstance(extra_dict, list):
        self.extra_dict_ref = tuple(weakref.ref(d) for d in extra_dict)
