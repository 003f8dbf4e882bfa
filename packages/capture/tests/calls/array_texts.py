"""A family of functions that make text of NumPy arrays and scalars of the trace, beside plain Python."""

import collections
import functools
import itertools
import re
import types
import warnings
from typing import NamedTuple

import numpy as np
import torch

import fxstack_capture

VALUES = {
    "array": lambda x: np.array([1, 2]),
    "of no dimension": lambda x: np.array(3),
    "item": lambda x: np.array([1.5, 2])[0],
    "sizes": lambda x: np.array(x.shape)[0],
    "of a tensor": lambda x: x.numpy() * 2,
    "sum": lambda x: x.numpy().sum(),
    "input": lambda x: INPUT[1],
}
INPUT = np.array([4, 5])


def _raised(fn, *args):
    try:
        return fn(*args)
    except (TypeError, AttributeError, ValueError, IndexError) as error:
        return type(error).__name__, *map(str, error.args)


def _matched(value):
    match value:
        case str():
            return 1
        case _:
            return str(value)


class Pair(NamedTuple):
    a: object
    b: object


USES = {
    **{fn.__name__: fn for fn in (str, repr, ascii, format)},
    "f-string": lambda v: (f"{v}", f"{v!r:>20}"),
    "specification": lambda v: _raised(lambda: f"{v:>20}"),
    "as specification": lambda v: _raised(lambda: f"{1.5:{v}}"),
    "percent": lambda v: ("%s" % v, "%r" % (v,), "%(v)s" % {"v": v}),  # noqa: UP031
    "str.format": lambda v: ("{}".format(v), "{v!r}".format(v=v), "{v}".format_map({"v": v})),  # noqa: UP032
    "fields": lambda v: _raised("{0.shape} {0.owner}".format, v),
    "items": lambda v: _raised("{0[0]}".format, v),
    "containers": lambda v: str(([v], {"a": v}, (v,), collections.deque([v]), types.SimpleNamespace(a=v))),
    "tuples": lambda v: repr((Pair(v, 1), {"a": v}.values(), types.MappingProxyType({"a": v}))),
    "error": lambda v: (str(ValueError(v)), repr(KeyError(v))),
    "map": lambda v: list(map(str, [v, 1])),
    "join": lambda v: "x".join(map(str, np.ravel(v))),
    "generator": lambda v: ",".join(str(i) for i in np.ravel(v)),
    "join of itself": lambda v: _raised("x".join, np.ravel(v)),
    "sorted": lambda v: sorted([v, 10], key=str)[0] == 10,
    "reduce": lambda v: functools.reduce(lambda text, i: text + str(i), np.ravel(v), ""),
    "partial": lambda v: functools.partial(str, v)(),
    "getattr": lambda v: getattr(v, "ndim" + str(v)[:0]),
    "key": lambda v: {str(v): 1}.get("3"),
    "branch": lambda v: 1 if "Array" in str(v) else 2,
    "pattern": lambda v: re.sub("a", str(v).replace("\\", ""), "ba"),
    "default text": lambda v: (
        object.__repr__(v)[:14],
        re.sub("0x[0-9a-f]+", "", str((lambda: v).__closure__[0])),
    ),
    "names": lambda v: ("owner" in dir(v), hasattr(v, "example")),
    "class": lambda v: (str(type(v)), v.__class__.__name__),
    "called": lambda v: _raised(lambda: v()),
    "attribute name": lambda v: _raised(getattr, 3, v),
    "mapping": lambda v: _raised(lambda: dict(**v)),
    "match": _matched,
}
FAMILY = list(itertools.product(VALUES, USES))


def outcome(fn, x):
    try:
        tensor, value = fn(x)
    except Exception as error:
        return type(error), str(error)
    return tensor.tolist(), value


def difference(made, used):
    """The outcomes of a function in plain Python and compiled, if they differ."""
    value, use = VALUES[made], USES[used]

    def fn(x):
        return x + 1, use(value(x))

    x = torch.arange(3.0)
    plain = outcome(fn, x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fxstack_capture.Uncompiled)
        compiled = outcome(fxstack_capture.optimize(lambda graph, _: graph.forward)(fn), x)
    fxstack_capture.reset()
    return None if repr(plain) == repr(compiled) else (plain, compiled)
