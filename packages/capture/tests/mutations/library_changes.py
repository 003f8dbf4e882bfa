"""What programs replace in torch, NumPy and the standard library.

``replaced`` is a context in which a replacement is in force, for the table of ``test_libraries`` and for the fuzzer.
"""

import collections
import contextlib
import copy
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
    **{m.__name__: m for m in (collections, copy, functools, itertools, math, operator, random)},
    "re": re,
    "sys": sys,
    "types": types,
    "np": np,
    "torch": torch,
    "nn": nn,
    "F": torch.nn.functional,
    "builtins": __import__("builtins"),
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
    *(
        "torch",
        "F",
        "torch.Tensor",
        "math",
        "functools",
        "operator",
        "collections.Counter",
        "nn.Module",
    ),
    *(
        "nn.Linear",
        "nn.LayerNorm",
        "nn.ReLU",
        "nn.Dropout",
        "nn.ModuleList",
        "nn.Identity",
        "nn.Tanh",
    ),
    *("nn.Sequential", "copy", "types.FunctionType", "torch.nn.modules.linear.F"),
)
_ALWAYS = ("forward", "linear", "layer_norm", "relu", "dropout", "__call__", "__add__", "__mul__")


def random_mode(text, rng):
    """A context, as text, in which something is replaced that a program of this text may use."""
    words = {*_WORD.findall(text), *_ALWAYS}
    for _ in range(50):
        holder = rng.choice(_HOLDERS)
        names = [
            n for n in vars(eval(holder, SCOPE)) if n in words and n not in ("__init__", "__new__")
        ]
        names = [n for n in names if isinstance(getattr(eval(holder, SCOPE), n), _KINDS)]
        if names and holder != "types.FunctionType":
            name = rng.choice(sorted(names))
            return f"replaced({holder}, {name!r}, changed({holder}, {name!r}))"
    return "contextlib.nullcontext()"


_KINDS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
)
