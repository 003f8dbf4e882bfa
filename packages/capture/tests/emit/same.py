"""Where two object graphs differ: types, content, identity structure (aliases), exceptions, tensors' metadata."""

import io
import re
import warnings
from types import ModuleType

import numpy as np
import torch


class OwnStream(io.StringIO):
    """A stream that the program wrote: what is printed there ends the graph."""


_PLAIN = (int, float, complex, str, bytes, bool, type(None), type, torch.dtype)


def _text(item):
    """As ``repr``, without the address that it may show."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(item))


def difference(a, b):
    """None, or a path and what differs there."""
    return _Compare().walk(a, b, "")


def _close(a, b):
    return isinstance(a, np.inexact) and a.dtype == b.dtype and np.isclose(a, b, rtol=1e-4)


class _Compare:
    def __init__(self):
        self.left, self.right, self.keep = {}, {}, []

    def walk(self, a, b, path):
        if type(a) is not type(b) and type(a).__qualname__ != type(b).__qualname__:
            return f"{path}: {type(a).__qualname__} {a!r} is not {type(b).__qualname__} {b!r}"
        if isinstance(a, (*_PLAIN, np.generic, np.dtype)) and not isinstance(a, type):
            return None if a == b or a != a or _close(a, b) else f"{path}: {a!r} is not {b!r}"
        if isinstance(a, ModuleType):
            return None if a is b else f"{path}: {a} is not {b}"
        if isinstance(a, type):
            return None if a.__qualname__ == b.__qualname__ else f"{path}: {a} is not {b}"
        if not isinstance(a, (tuple, frozenset)):
            if self._is_view(a):
                return self.walk(list(a), list(b), path)
            known = self.left.get(id(a)), self.right.get(id(b))
            if known != (None, None):
                return None if known[0] == known[1] else f"{path}: aliases differ: {known}"
            self.left[id(a)] = self.right[id(b)] = path
            self.keep += [a, b]
        return self.content(a, b, path)

    def _is_view(self, a):
        return isinstance(a, (type({}.keys()), type({}.items()), type({}.values())))

    def content(self, a, b, path):
        if isinstance(a, torch.Tensor):
            return self.tensors(a, b, path)
        if isinstance(a, np.ndarray) and a.dtype.kind in "biufc":
            return self.arrays(a, b, path)
        if isinstance(a, BaseException):
            pairs = [
                ("args", a.args, b.args),
                ("dict", vars(a), vars(b)),
                ("cause", a.__cause__, b.__cause__),
            ]
            pairs += [("context", type(a.__context__).__name__, type(b.__context__).__name__)]
            return self.first((x, y, f"{path}.{n}") for n, x, y in pairs)
        if isinstance(a, dict):
            found = self.first((x, y, f"{path}.key") for x, y in zip(a, b))
            found = found or self.first((a[k], b[m], f"{path}[{k!r}]") for k, m in zip(a, b))
            if found or len(a) != len(b):
                return found or f"{path}: lengths {len(a)} and {len(b)}"
        if isinstance(a, (list, tuple)):
            if len(a) != len(b):
                return f"{path}: lengths {len(a)} and {len(b)}"
            found = self.first((x, y, f"{path}[{i}]") for i, (x, y) in enumerate(zip(a, b)))
            if found:
                return found
        if isinstance(a, (set, frozenset)):
            return None if sorted(map(_text, a)) == sorted(map(_text, b)) else f"{path}: sets {a} {b}"
        if callable(a) and not hasattr(a, "__dict__"):
            return (
                None
                if a == b or type(a).__name__ in ("method", "builtin_function_or_method")
                else f"{path}: {a} {b}"
            )
        if hasattr(a, "__next__") and not hasattr(a, "__dict__") and not hasattr(a, "gi_frame"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                parts = a.__reduce_ex__(2), b.__reduce_ex__(2)
            self.keep += parts
            return self.walk(*parts, f"{path}.reduced")
        slots = [n for c in type(a).__mro__ for n in getattr(c, "__slots__", ())]
        found = self.first((getattr(a, n, None), getattr(b, n, None), f"{path}.{n}") for n in slots)
        if found or not hasattr(a, "__dict__"):
            return found
        return self.walk(vars(a), vars(b), f"{path}.__dict__")

    def first(self, triples):
        for x, y, path in triples:
            found = self.walk(x, y, path)
            if found:
                return found
        return None

    def tensors(self, a, b, path):
        facts = lambda t: (t.shape, t.dtype, t.stride(), t.requires_grad, t.is_leaf, t.storage_offset())
        if facts(a) != facts(b):
            return f"{path}: {facts(a)} is not {facts(b)}"
        if not torch.allclose(a.detach(), b.detach(), equal_nan=True, rtol=1e-4, atol=1e-5):
            return f"{path}: {a} is not {b}"
        base = a._base is None, b._base is None
        return f"{path}: bases {base}" if base[0] != base[1] else None

    def arrays(self, a, b, path):
        facts = lambda x: (x.shape, x.dtype, x.strides, x.flags.writeable)
        if facts(a) != facts(b):
            return f"{path}: {facts(a)} is not {facts(b)}"
        same = np.allclose(a, b, equal_nan=True, rtol=1e-4, atol=1e-5)
        return None if same else f"{path}: {a} is not {b}"
