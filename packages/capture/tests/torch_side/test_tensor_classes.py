"""Operators, attributes and handlers that users' classes of tensors define: compiled is as eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from overriding import LOG, Logged, Plain, Programs, logged, same
from torch import nn

import fxstack_capture as fx

p = PROGRAMS = Programs()


class Neg(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


@p(graphs=None, make=lambda: (torch.ones(3).as_subclass(Neg), torch.ones(3)))
def notimpl(x, y):
    return torch.add(x, y)


class Meta(torch.Tensor):
    @staticmethod
    def __new__(cls, data, meta=None):
        return torch.Tensor._make_subclass(cls, data)

    def __init__(self, data, meta=None):
        self.meta = meta

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        metas = [a.meta for a in args if isinstance(a, Meta)]
        with torch._C.DisableTorchFunctionSubclass():
            r = func(*args, **kwargs)
        if isinstance(r, torch.Tensor):
            r = r.as_subclass(cls)
            r.meta = sum(metas)
        return r


@p(make=lambda: (Meta(torch.ones(3), 3), Meta(torch.ones(3), 4)))
def meta(x, y):
    z = x + y
    return z, z.meta, (z * 2).meta


@p(make=lambda: (torch.ones(3),), graphs=None)
def meta_made(x):
    z = Meta(x, 5)
    w = z * 2
    return z, w, w.meta


class Dun(torch.Tensor):
    def __add__(self, o):
        LOG.append("add")
        return super().__add__(o)

    def __radd__(self, o):
        LOG.append("radd")
        return super().__add__(o)

    def __getitem__(self, i):
        LOG.append("getitem")
        return super().__getitem__(i)

    def __len__(self):
        return 17

    def __bool__(self):
        return True

    def __matmul__(self, o):
        return "matmul"

    def __eq__(self, o):
        return "eq"

    def __hash__(self):
        return 5

    def __iter__(self):
        return iter([1, 2])

    def __contains__(self, i):
        return i == 3

    def __call__(self, a):
        return self * a

    def __neg__(self):
        return "neg"

    def __getattr__(self, n):
        if n == "magic":
            return 42
        raise AttributeError(n)


@p(make=logged(Dun))
def dunders(x, y):
    return (
        x + y,
        y + x,
        2 + x,
        x[0],
        x @ y,
        x == y,
        -x,
        len(x),
        list(x),
        3 in x,
        x(2),
        x.magic,
        bool(x),
        1 if x else 2,
    )


class Handled(torch.Tensor):
    H = {}

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in cls.H:
            return cls.H[func](*args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs)


def impl(f):
    def d(g):
        Handled.H[f] = g
        return g

    return d


@impl(torch.add)
def _(a, b):
    return "added"


@impl(torch.Tensor.add)
def _(a, b):
    return "tensor added"


@impl(torch.nn.functional.relu)
def _(input, inplace=False):
    return "relu %s" % inplace


@impl(torch.Tensor.shape.__get__)
def _(a):
    return (9, 9)


@p(make=logged(Handled), graphs=None)
def handled(x, y):
    return torch.add(x, y), x + y, nn.functional.relu(x), x.shape, x.ndim, x * 2


class Par(nn.Parameter):
    def special(self):
        return self * 3


class Mod(nn.Module):
    def __init__(self, cls=None):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        if cls:
            self.w = nn.Parameter(torch.ones(3).as_subclass(cls))
        else:
            self.w = Par(torch.ones(3))

    def forward(self, x):
        return self.lin(x) * self.w + (self.w.special() if hasattr(self.w, "special") else 0)


@p(make=lambda: (lambda m: (torch.ones(2, 3), m.w, m))(Mod()))
def par(x, w, m):
    return m(x), isinstance(m.w, nn.Parameter), type(m.w)


@p(make=lambda: (lambda m: (torch.ones(2, 3), m.w, m))(Mod(Logged)))
def par2(x, w, m):
    return m(x), isinstance(m.w, nn.Parameter), type(m.w)


@p(make=lambda: (lambda m: (torch.ones(2, 3), m.w, m))(Mod(Plain)))
def par3(x, w, m):
    return m(x), isinstance(m.w, nn.Parameter), type(m.w)


@pytest.mark.parametrize(("fn", "make", "graphs", "calls"), PROGRAMS)
def test_same_as_eager(fn: Any, make: Any, graphs: int | None, calls: int) -> None:
    same(fn, make, graphs=graphs, calls=calls)


def test_a_replaced_torch_function_is_seen() -> None:
    class Tripled(torch.Tensor):
        factor = 2

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = super().__torch_function__(func, types, args, kwargs)
            return result.as_subclass(torch.Tensor) * cls.factor

    def program(x: torch.Tensor) -> Any:
        return x * 3

    original = vars(Tripled)["__torch_function__"]
    other = classmethod(lambda *_: "replaced")
    disabled = torch._C._disabled_torch_function_impl
    compiled = fx.optimize(lambda module, _: module.forward)(program)
    for function in (original, other, disabled, original, disabled, other):
        Tripled.__torch_function__ = function
        x = torch.ones(3).as_subclass(Tripled)
        results = compiled(x), program(x)
        assert type(results[0]) is type(results[1])
        assert str(results[0]) == str(results[1])
