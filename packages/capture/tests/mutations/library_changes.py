"""What programs replace in torch, NumPy and the standard library.

``replaced`` is a context in which a replacement is in force, for the table of ``test_libraries`` and for the fuzzer.
"""

import builtins
import collections
import contextlib
import copy
import dataclasses
import functools
import itertools
import math
import operator
import random
import re
import sys
import types

import numpy as np
import torch
from torch import nn

_MISSING = object()
SCOPE = {
    **{m.__name__: m for m in (collections, copy, dataclasses, functools, itertools, math)},
    **dict(re=re, sys=sys, types=types, np=np, torch=torch, nn=nn),
    **{"operator": operator, "random": random},  # noqa: PIE800
    **{"F": torch.nn.functional, "builtins": builtins},  # noqa: PIE800
}


@contextlib.contextmanager
def replaced(holder, name, new):
    """``holder.name = new`` (an item of a dictionary, where it is one), until the context is left."""
    if isinstance(holder, dict):
        before, store, remove = holder.get(name, _MISSING), holder.__setitem__, holder.__delitem__
    else:
        before = _own(holder, name)
        store, remove = (functools.partial(f, holder) for f in (setattr, delattr))
    store(name, new)
    try:
        yield
    finally:
        if before is _MISSING:
            remove(name)
        else:
            store(name, before)


def _own(holder, name):
    if name in ("__code__", "__defaults__"):
        return getattr(holder, name)
    return vars(holder).get(name, _MISSING)


def changed(holder, name):
    """A function that gives twice what ``holder.name`` gives, where that is a tensor or a float."""
    before = getattr(holder, name)

    def other(*args, **kwargs):
        result = before(*args, **kwargs)
        return result * 2 if type(result) in (float, torch.Tensor) else result

    return other


_WORD = re.compile(r"[A-Za-z_]\w+")
_HOLDERS = (
    *("torch", "F", "torch.Tensor", "math", "functools", "collections.Counter", "nn.Module"),
    *("nn.Linear", "nn.LayerNorm", "nn.ReLU", "nn.Dropout", "nn.Identity", "nn.Sequential"),
    *("np", "dataclasses", "torch.special"),
)
_ALWAYS = (
    *("forward", "linear", "layer_norm", "relu", "dropout", "__call__", "__add__", "__mul__"),
    "_call_impl",
)


def random_mode(text, rng):
    """A context, as text, in which something is replaced that a program of this text may use."""
    words = {*_WORD.findall(text), *_ALWAYS}
    found = [
        (holder, name)
        for holder in _HOLDERS
        for name in sorted(words & set(dir(eval(holder, SCOPE))))
        if isinstance(getattr(eval(holder, SCOPE), name), _KINDS)
    ]
    holder, name = rng.choice(found)
    return f"replaced({holder}, {name!r}, changed({holder}, {name!r}))"


_KINDS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
)
