"""The head of every random program: imports, helper functions and classes that its statements use."""

PRELUDE = '''
import collections, contextlib, dataclasses, functools, io, itertools, math, operator, random
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

OUT = io.StringIO()
STATE = {"calls": 0, "list": []}
COUNT = 0
Pair = collections.namedtuple("Pair", "a b")


class Box:
    total = 0

    def __init__(self, value, log=None):
        self.value = value
        self.log = [] if log is None else log
        self.table = {}

    def add(self, t):
        self.value = self.value + t
        self.log.append("add")
        return self

    def keep(self, **items):
        self.table.update(items)
        return len(self.table)

    def __add__(self, other):
        return Box(self.value + (other.value if isinstance(other, Box) else other), list(self.log))

    def __mul__(self, other):
        return type(self)(self.value * other)

    def __len__(self):
        return len(self.log)

    def __getitem__(self, key):
        return self.value[key]

    def __setitem__(self, key, value):
        self.value[key] = value

    def __iter__(self):
        yield self.value
        yield from (item for item in self.log if isinstance(item, int))

    def __contains__(self, item):
        return item in self.log

    @property
    def double(self):
        self.log.append(2)
        return self.value * 2

    @staticmethod
    def half(t):
        return t * 0.5

    @classmethod
    def of(cls, t):
        cls.total += 1
        return cls(t)

    def __call__(self, t, scale=1):
        return self.value.sum() * scale + t


class Small(Box):
    def add(self, t):
        super().add(t)
        self.extra = len(self.log)
        return self


@dataclasses.dataclass
class Record:
    t: torch.Tensor
    n: int = 1
    names: list = dataclasses.field(default_factory=list)

    def scaled(self, by):
        return dataclasses.replace(self, t=self.t * by, n=self.n + 1)


class Context:
    def __init__(self, log, swallow=False):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, kind, value, trace):
        self.log.append(kind.__name__ if kind else "out")
        return self.swallow and kind is not None and issubclass(kind, (ValueError, KeyError))


@contextlib.contextmanager
def noting(log, name):
    log.append("+" + name)
    try:
        yield len(log)
    finally:
        log.append("-" + name)


class Oops(Exception):
    def __init__(self, code, extra=None):
        super().__init__(code)
        self.extra = extra


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, k):
        ctx.k = k
        ctx.save_for_backward(t)
        return t * k

    @staticmethod
    def backward(ctx, g):
        (t,) = ctx.saved_tensors
        return g * ctx.k + 0 * t, None


class Halves(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        return t * 0.5, t.sin()

    @staticmethod
    def backward(ctx, a, b):
        return a * 2 + b


class Marked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        rounded = t.round()
        ctx.mark_non_differentiable(rounded)
        return t + 1, rounded

    @staticmethod
    def backward(ctx, a, b):
        return a.clamp(-1, 1)


def helper(t, k=2, *rest, flag=False):
    if flag:
        t = t - 1
    for r in rest:
        t = t + r
    return t * k


def noisy(t, what="n"):
    t = t + 1
    OUT.write(what)
    return t * 2


def counted():
    global COUNT
    COUNT += 1
    return COUNT


def gen(n, t):
    for i in range(n):
        got = yield t + i
        if got:
            yield got


def chain(t, depth):
    return t if depth <= 0 else chain(t * 0.5 + depth, depth - 1)


def pieces(t):
    try:
        for row in t:
            yield row * 2
    finally:
        STATE["list"].append("closed")


def twice(fn):
    @functools.wraps(fn)
    def wrapped(*args, **kwargs):
        STATE["calls"] += 1
        return fn(*args, **kwargs) * 2

    return wrapped


@twice
def wrapped_relu(t, *, slope=0.1):
    return F.leaky_relu(t, slope)


def tensor(seed, shape, dtype, layout="plain", grad=False, low=0, high=4):
    """An input. Layouts: plain, turned, stepped, offset, expanded, channels_last, reversed."""
    g = torch.Generator().manual_seed(seed)
    shape = tuple(shape)
    made = shape
    if layout == "turned":
        made = shape[::-1]
    elif layout == "stepped":
        made = (*shape[:-1], shape[-1] * 2)
    elif layout == "offset":
        made = (shape[0] + 1, *shape[1:])
    elif layout == "expanded":
        made = (1, *shape[1:])
    if dtype.is_complex:
        t = torch.complex(torch.randn(made, generator=g), torch.randn(made, generator=g)).to(dtype)
    elif dtype.is_floating_point:
        t = torch.randn(made, generator=g).to(dtype)
    elif dtype is torch.bool:
        t = torch.rand(made, generator=g) > 0.5
    else:
        t = torch.randint(low, max(high, low + 1), made, generator=g).to(dtype)
    if layout == "turned":
        t = t.permute(tuple(reversed(range(t.dim()))))
    elif layout == "stepped":
        t = t[..., ::2]
    elif layout == "offset":
        t = t[1:]
    elif layout == "expanded":
        t = t.expand(shape)
    elif layout == "channels_last":
        t = t.to(memory_format=torch.channels_last)
    return t.detach().requires_grad_() if grad else t
'''
