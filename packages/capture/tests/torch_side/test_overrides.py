"""``__torch_function__`` of users' classes of tensors: compiled is as eager, down to what is called and in which order."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from overriding import Derived, Logged, Plain, Programs, logged, same

import fxstack_capture as fx

p = PROGRAMS = Programs()


@p()
def ops(x, y):
    return x + y, y + x, x * 2, 2 - x, -x, x @ y, x / y, x**2, x.sum(), abs(x), x % 2


@p()
def cmp(x, y):
    return x > y, x == 1, x != y, y < x


@p()
def attrs(x, y):
    return x.shape, x.ndim, x.dtype, x.T, x.device, x.requires_grad, x.is_leaf, x.mT


@p()
def index(x, y):
    return x[0], x[:, 1:], y[x.detach().long()[0] % 3], x[None], x[..., 0]


@p()
def iterate(x, y):
    return [r * 2 for r in x], len(x)


@p()
def methods(x, y):
    return x.doubled(), x.top, Logged.of(y), type(x).of(y)


@p()
def funcs(x, y):
    return (
        torch.nn.functional.relu(x),
        torch.cat([x, x]),
        torch.stack([y, y]),
        torch.nn.functional.linear(x, torch.ones(4, 3)),
        torch.nn.functional.layer_norm(x, (3,)),
    )


@p()
def maxes(x, y):
    m = x.max(dim=1)
    return m.values, m.indices, m[0], torch.sort(x, descending=True)


@p()
def inplace(x, y):
    z = x * 1
    z.add_(1)
    z += y
    z[0] = 5
    return z


@p()
def disabled(x, y):
    with torch._C.DisableTorchFunctionSubclass():
        a = x + 1
        s = x.shape
    return a, x + 1, s


@p()
def isinst(x, y):
    return (
        isinstance(x, Logged),
        isinstance(x, torch.Tensor),
        isinstance(y, Logged),
        type(x),
        type(x + 1),
        issubclass(type(x), Logged),
        x.__class__,
    )


@p(make=logged(Plain))
def plain(x, y):
    return x + y, type(x + y), torch.relu(x), x.shape


@p(make=logged(Derived))
def derived(x, y):
    return x + y, x.doubled(), x + x.as_subclass(Logged), x.as_subclass(Logged) + x


@p()
def setattrs(x, y):
    z = x + y
    z.tag = "hello"
    z.other = y * 2
    return z, z.tag


@p(graphs=2)
def attr_in(x, y):
    x.seen = getattr(x, "seen", 0) + 1
    return x * x.seen


@p()
def unwrap(x, y):
    return x.as_subclass(torch.Tensor) * 2, x.detach(), x.clone()


@p()
def nograd(x, y):
    with torch.no_grad():
        a = x + 1
        b = y.as_subclass(Logged)
    return a, b, x * 2


@p(graphs=None)
def sub_break(x, y):
    a = x + 1
    fx.graph_break()
    return a * 2


@p(graphs=0)
def handlers(x, y):
    return (
        torch.overrides.has_torch_function((x,)),
        torch.overrides.has_torch_function((y,)),
        torch.overrides.is_tensor_like(x),
    )


@p()
def einsum(x, y):
    return (
        torch.einsum("ij,j->i", x, y),
        torch.where(x > 1, x, y),
        x.view(-1),
        x.reshape(3, 2).t(),
        x.split(1),
        x.unbind(),
        torch.chunk(x, 2, 1),
    )


@p()
def norm(x, y):
    return (x.norm(), x.mean(), x.std(), torch.softmax(x, -1), x.float().to(torch.float64), x.to("cpu"))


@p()
def listops(x, y):
    return (
        sum([x, x]),
        max([x.sum(), y.sum()], key=lambda t: t.ndim),
        list(map(torch.relu, [x, y])),
        sorted([x, y], key=lambda t: t.ndim),
    )


@p(graphs=None)
def item(x, y):
    return x.sum().item(), float(y[0])


@p()
def kw(x, y):
    return (
        torch.add(x, y, alpha=2),
        torch.add(input=y, other=x),
        x.sum(dim=0, keepdim=True),
        torch.clamp(x, min=1),
    )


@p(graphs=None)
def tensorbool(x, y):
    if x.sum() > 3:
        return x + 1
    return x - 1


@p()
def newcls(x, y):
    return Logged(y), Plain(y), torch.Tensor._make_subclass(Plain, y)


@p(graphs=None)
def err(x, y):
    return x @ torch.ones(7, 7)


@p()
def closure(x, y):
    fs = [lambda t, i=i: t * i for i in range(3)]
    return [f(x) for f in fs]


# outer modes


@p()
def out_kw(x, y):
    o = torch.empty(2, 3)
    torch.add(x.detach(), y, out=o)
    return o


@p()
def resolve(x, y):
    return (
        torch.overrides.resolve_name(torch.add),
        torch.overrides.is_tensor_method_or_property(torch.Tensor.add),
        x + 1,
    )


@p()
def gradthrough(x, y):
    z = (x * y).sum()
    (g,) = torch.autograd.grad(z, [x])
    return g


@p(graphs=None)
def bw(x, y):
    (x * x).sum().backward()
    return x.grad


@p(graphs=None)
def lengthy(x, y):
    for i in range(3):
        x = x + i
        if x.sum() > 2:
            y = y * x.mean()
    return y


@p()
def dict_of(x, y):
    d = {x: 1}
    return x in d, d[x], x * 2, [x].index(x)


@p()
def cmp_chain(x, y):
    return [t for t in (x, y) if isinstance(t, Logged)][0] + 1, x is x, x is not y


@p()
def alias(x, y):
    v = x.view(6)
    w = v[1:]
    return v, w, x.t()


@p(make=logged(grad=False))
def mutate_in(x, y):
    x.add_(1)
    x[0] = 7
    return x


@p(make=logged(grad=False))
def mutate_view(x, y):
    v = x[0]
    v.mul_(2)
    return v


@p()
def rg(x, y):
    return x.requires_grad, (x + 1).requires_grad, x.detach().requires_grad, x.grad_fn


@p(graphs=None)
def fmt(x, y):
    return f"{x.shape} {type(x).__name__}", repr(y), x + 1


@p(graphs=None)
def vm(x, y):
    return torch.vmap(lambda t: t * 2)(y), x + 1


@p(graphs=None)
def cond(x, y):
    return (
        torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]),
        torch.nn.functional.dropout(x, 0.0),
        torch.nn.functional.embedding(torch.tensor([0, 1]), x),
    )


@pytest.mark.parametrize(("fn", "make", "graphs", "calls"), PROGRAMS)
def test_same_as_eager(fn: Any, make: Any, graphs: int | None, calls: int) -> None:
    same(fn, make, graphs=graphs, calls=calls)
