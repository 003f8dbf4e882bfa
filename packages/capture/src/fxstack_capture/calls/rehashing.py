"""Hashing that the trace does in addition to the hashing of the program.

When the trace wraps a hash table, it fills the proxy, which hashes each key once more. If ``__hash__`` or
``__eq__`` of a key is Python code, the program does not notice the additional calls as long as they have no
side effects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FunctionType

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.torch_side.higher_order.surroundings import Surroundings
from fxstack_capture.trace.state import Trace
from fxstack_interchange.format.symbols import SYMBOLIC

_NOT_THE_PROGRAMS = (torch.Tensor, *SYMBOLIC)


@contextmanager
def without_effects(trace: Trace, keys: Iterable[object]) -> Iterator[None]:
    """Break the graph if hashing or comparing ``keys`` inside of the block has a visible side effect."""
    if not any(map(_is_interpreted, keys)):
        yield
        return
    try:
        before = Surroundings(trace)
        yield
        changed = before.have_changed()
    except AttributeError as error:  # the proxy of a key may not be filled yet
        if trace.interp.raises(error):
            raise
        detail, frame = "__hash__ or __eq__ of a key", trace.interp.current_frame()
        raise graph_break("side-effect-call", detail, whole=frame) from None
    if changed:
        raise graph_break("side-effect-call", "__hash__ or __eq__ of a key")


def _is_interpreted(key: object) -> bool:
    """Whether Python code of the program hashes or compares ``key``, or a part of ``key``."""
    if isinstance(key, tuple):
        return any(map(_is_interpreted, tuple.__iter__(key)))
    if isinstance(key, _NOT_THE_PROGRAMS):
        return False
    cls = type(key)
    return isinstance(cls.__hash__, FunctionType) or isinstance(cls.__eq__, FunctionType)
