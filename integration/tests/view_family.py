"""Programs that change a tensor through a chain of views, made from tables: bases, view operators, changes.

``cases(depth)`` gives all of them in a fixed order, ``pairs`` those that read one view and write another view of a base;
``differences`` runs one in eager and compiled, and says what a user could tell apart: values, strides, places in memory, what
shares memory, gradients, exceptions. A graph that is refused for overlapping memory must have such memory.
"""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

import fxstack

Function = Callable[..., Any]

BASES: dict[str, Callable[[], torch.Tensor]] = {
    "flat": lambda: _numbers(8),
    "matrix": lambda: _numbers(24).view(4, 6),
    "transposed": lambda: _numbers(24).view(4, 6).t(),
    "gaps": lambda: _numbers(48).view(4, 12)[:, ::2],
    "offset": lambda: _numbers(27)[3:].view(4, 6),
    "one row": lambda: _numbers(6).view(1, 6),
    "cube": lambda: _numbers(24).view(2, 3, 4),
    "complex": lambda: torch.view_as_complex(_numbers(48).view(4, 6, 2)),
    "whole": lambda: torch.arange(24).view(4, 6),
    "huge": lambda: _numbers(24).view(4, 6) * 1e30,
    "expanded": lambda: _numbers(6).expand(4, 6),
    "windows": lambda: _numbers(8).unfold(0, 4, 2),
}
OVERLAPPING = ("expanded", "windows")
"""Bases that nothing can be computed into, and that are therefore no intermediate tensors with a gradient.

Eager's gradient of what lies in the gaps of an intermediate tensor is memory that nobody has written.
"""


def _numbers(count: int) -> torch.Tensor:
    return torch.arange(1.0, count + 1) / 8


def _last(function: Function) -> Function:
    return lambda t: function(t, t.dim() - 1)


VIEWS: dict[str, Function] = {
    **{
        f"unfold {size} {step}": _last(lambda t, d, a=size, b=step: t.unfold(d, a, b))
        for size, step in itertools.product((1, 2, 3), (1, 2, 3))
    },
    "unfold first": lambda t: t.unfold(0, 2, 2),
    "unfold whole": _last(lambda t, d: t.unfold(d, t.shape[d], 1)),
    **{
        f"as_strided {size} {stride} {offset}": (
            lambda t, a=size, b=stride, c=offset: t.as_strided(a, b, t.storage_offset() + c)
        )
        for size, stride, offset in (
            ((3,), (2,), 0),
            ((2, 2), (3, 1), 1),
            ((2, 3), (1, 1), 0),
            ((2, 2), (0, 1), 2),
            ((4,), (1,), 3),
            ((0, 2), (2, 1), 0),
            ((), (), 5),
        )
    },
    "as_strided here": lambda t: t.as_strided((2,), (1,)),
    "diagonal": lambda t: t.diagonal(),
    "diagonal 1": lambda t: t.diagonal(1),
    "diagonal -1": lambda t: t.diagonal(-1),
    "diagonal -2 -1": lambda t: t.diagonal(0, -2, -1),
    "slice 2": lambda t: t[::2],
    "slice 1:": lambda t: t[1:],
    "slice 1::3": lambda t: t[..., 1::3],
    "slice :-1": lambda t: t[:-1],
    "slice empty": lambda t: t[2:2],
    "slice columns": lambda t: t[:, 1:3],
    "select": lambda t: t[0],
    "select last": lambda t: t[..., -1],
    "select 1": lambda t: t.select(0, 1),
    "none": lambda t: t[None, ..., None],
    "ellipsis": lambda t: t[...],
    "expand rows": lambda t: t.expand(3, *t.shape),
    "expand ones": lambda t: t.unsqueeze(-1).expand(*t.shape, 2),
    "expand_as": lambda t: t.expand_as(t),
    "expand first": lambda t: t.expand(2, *t.shape[1:]),
    "broadcast_to": lambda t: t.broadcast_to((2, *t.shape)),
    "broadcast_tensors": lambda t: torch.broadcast_tensors(t, torch.ones(2, *t.shape))[0],
    "narrow": lambda t: t.narrow(0, 1, 2),
    "squeeze": lambda t: t.squeeze(),
    "squeeze 0": lambda t: t.squeeze(0),
    "squeeze dims": lambda t: t.unsqueeze(0).squeeze((0, 1)),
    "unsqueeze": lambda t: t.unsqueeze(1),
    "split": lambda t: t.split(2)[1],
    "split sizes": lambda t: t.split([1, t.shape[0] - 1])[1],
    "chunk": _last(lambda t, d: t.chunk(2, d)[0]),
    "tensor_split": lambda t: t.tensor_split(3)[0],
    "tensor_split at": lambda t: t.tensor_split((1, 2))[1],
    "unbind": lambda t: t.unbind()[0],
    "unbind last": lambda t: t.unbind(-1)[1],
    "hsplit": lambda t: t.hsplit(2)[1],
    "vsplit": lambda t: t.vsplit(2)[1],
    "dsplit": lambda t: t.dsplit(2)[0],
    "view": lambda t: t.view(-1),
    "view 2": lambda t: t.view(2, -1),
    "view_as": lambda t: t.view_as(t),
    "reshape": lambda t: t.reshape(2, -1),
    "flatten": lambda t: t.flatten(),
    "ravel": lambda t: t.ravel(),
    "unflatten": _last(lambda t, d: t.unflatten(d, (-1, 2))),
    "view dtype": lambda t: t.view(torch.int32),
    "view narrow dtype": lambda t: t.view(torch.int16),
    "view_as_real": lambda t: torch.view_as_real(t),
    "view_as_complex": lambda t: torch.view_as_complex(t.unflatten(-1, (-1, 2))),
    "real": lambda t: t.real,
    "imag": lambda t: t.imag,
    "conj": lambda t: t.conj(),
    "conj imag": lambda t: t.conj().imag,
    "transpose": lambda t: t.transpose(0, -1),
    "permute": lambda t: t.permute(*range(1, t.dim()), 0),
    "movedim": lambda t: t.movedim(0, -1),
    "swapaxes": lambda t: t.swapaxes(0, 1),
    "swapdims": lambda t: t.swapdims(-1, 0),
    "t": lambda t: t.t(),
    "T": lambda t: t.T,
    "mT": lambda t: t.mT,
    "mH": lambda t: t.mH,
    "H": lambda t: t.H,
    "adjoint": lambda t: t.adjoint(),
    "detach": lambda t: t.detach(),
    "data": lambda t: t.data,
    "alias": lambda t: torch.ops.aten.alias(t),
    "atleast_2d": lambda t: torch.atleast_2d(t),
}


def _index_put(v: torch.Tensor, _b: torch.Tensor, y: torch.Tensor) -> Any:
    return v.index_put_((torch.tensor([0, 0]),), y[:1], accumulate=True)


def _set_part(v: torch.Tensor, _b: torch.Tensor, y: torch.Tensor) -> None:
    v[:1] = y[:1]


def _set_all(v: torch.Tensor, _b: torch.Tensor, y: torch.Tensor) -> None:
    v[...] = y


def _iadd(v: torch.Tensor, _b: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    v += y
    return v


def _masked(v: torch.Tensor, _b: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return v.masked_fill_(y.real > 1 if y.is_complex() else y > 1, 7)


def _both(v: torch.Tensor, b: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    v.mul_(y)
    b.add_(1)
    return v.mul_(2)


def _base_first(v: torch.Tensor, b: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    b.mul_(3)
    return v.add_(y)


def _ior(v: torch.Tensor, _b: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    v |= y
    return v


def _set_mask(v: torch.Tensor, _b: torch.Tensor, y: torch.Tensor) -> None:
    v[v.real > 1] = y.flatten()[0]


def _half(v: torch.Tensor, _b: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    part = v[..., :1]
    part.add_(y[..., :1])
    return part


CHANGES: dict[str, Function] = {
    "add itself": lambda v, b, y: v.add_(v),
    "add base": lambda v, b, y: v.add_(b.sum().to(v.dtype)),
    "add base as it is": lambda v, b, y: v.add_(b),
    "copy": lambda v, b, y: v.copy_(y),
    "fill": lambda v, b, y: v.fill_(3),
    "zero": lambda v, b, y: v.zero_(),
    "mul": lambda v, b, y: v.mul_(y),
    "iadd": _iadd,
    "index_put": _index_put,
    "masked_fill": _masked,
    "set all": _set_all,
    "set part": _set_part,
    "out": lambda v, b, y: torch.add(y, 1, out=v),
    "inplace": lambda v, b, y: torch.nn.functional.hardtanh(v, 1.0, 2.0, inplace=True),
    "list": lambda v, b, y: torch._foreach_add_([v], [y]),
    "view and base": _both,
    "base first": _base_first,
    "part": _half,
    "base": lambda v, b, y: b.mul_(2),
}
READING: dict[str, Function] = {
    **{
        name: CHANGES[name]
        for name in ("copy", "mul", "iadd", "set all", "set part", "out", "list", "index_put")
    },
    "ior": _ior,
    "set mask": _set_mask,
    "sub other type": lambda v, b, y: v.sub_(y.to(torch.float64) if y.is_floating_point() else y),
    "fill": lambda v, b, y: v.fill_(y.flatten()[0]),
    "masked_fill": lambda v, b, y: v.masked_fill_(v.real > 1, y.flatten()[0]),
    "scatter": lambda v, b, y: v.scatter_(0, torch.zeros(y.shape, dtype=torch.int64), y),
    "scatter_add": lambda v, b, y: v.scatter_add_(0, torch.zeros(y.shape, dtype=torch.int64), y),
    "index_copy": lambda v, b, y: v.index_copy_(0, torch.tensor([0]), y[:1]),
    "index_add": lambda v, b, y: v.index_add_(0, torch.tensor([0]), y[:1]),
    "masked_scatter": lambda v, b, y: v.masked_scatter_(v.real > 1, y),
    "addcmul": lambda v, b, y: v.addcmul_(y, y, value=2),
    "lerp": lambda v, b, y: v.lerp_(y, 0.5),
    "where out": lambda v, b, y: torch.where(v.real > 1, v, y, out=v),
    "cumsum out": lambda v, b, y: torch.cumsum(y, 0, out=v),
    "two": lambda v, b, y: (v.copy_(y), y.mul_(2))[0],
    "swap": lambda v, b, y: (y.add_(v), v.sub_(y))[1],
}
"""Changes of a view that read another view ``y`` of the same base."""
ELEMENTWISE = frozenset(READING) - {
    *("index_put", "fill", "masked_fill", "scatter", "scatter_add", "index_copy", "index_add"),
    *("masked_scatter", "cumsum out", "set mask"),
}
"""Operators that read only the element that they write."""
UNDECIDED = ("diagonal", "unfold", "as_strided")
"""Views whose overlap with others is not decided for symbolic sizes."""
KINDS = ("input", "clone", "train", "train input", "no_grad", "changed")
PAIR_KINDS = ("input", "clone", "train", "changed")


@dataclass(frozen=True)
class Case:
    """A chain of views of a base, and a change. ``kind``: what the base is, and whether gradients are taken.

    "changed": the base is an input that has been changed in place before it is viewed.
    """

    base: str
    views: tuple[str, ...]
    change: str
    kind: str
    dynamic: bool = False
    read: str | None = None
    """The view of the base that the change reads; None: another tensor."""

    @property
    def trains(self) -> bool:
        return self.kind in {"train", "train input"}

    def __str__(self) -> str:
        sizes = ", dynamic" if self.dynamic else ""
        read = f" from {self.read}" if self.read else ""
        return f"{self.base}: {' / '.join(self.views)}: {self.change}{read} ({self.kind}{sizes})"


def cases(depth: int, count: int | None = None, seed: int = 0) -> list[Case]:
    """Return ``count`` cases with chains of ``depth`` views that eager can make, all for None."""
    draw = random.Random(seed)
    chosen = _all(depth) if count is None else _drawn(depth, draw)
    valid = (case for case in chosen if _views_of(case) is not None)
    return list(itertools.islice(valid, count))


def pairs(count: int | None = None, seed: int = 0) -> list[Case]:
    """Return ``count`` cases that read one view of a base and change another view of it, all for None."""
    made = [pair for base in BASES for pair in _pairs_of(base)]
    if count is None:
        drawn = itertools.product(made, READING, PAIR_KINDS, (False, True))
    else:
        draw = random.Random(seed)
        tables = made, [*READING], PAIR_KINDS, (False, True)
        drawn = (tuple(map(draw.choice, tables)) for _ in range(count))
    return [
        Case(base, (changed,), change, kind, dynamic, read)
        for (base, changed, read), change, kind, dynamic in drawn
    ]


def _pairs_of(base: str) -> list[tuple[str, str, str]]:
    """Return the pairs of views of a base of which the second can be read to change the first."""
    found = {name: _views_of(Case(base, (name,), "fill", "clone")) for name in VIEWS}
    made = {name: view for name, view in found.items() if view is not None and view.numel()}
    return [(base, one, other) for one in made for other in made if _fit(made[one], made[other])]


def _fit(changed: torch.Tensor, read: torch.Tensor) -> bool:
    sizes = zip(reversed(read.shape), reversed(changed.shape), strict=False)
    broadcasts = read.dim() <= changed.dim() and all(one in (1, size) for one, size in sizes)
    return broadcasts and changed.dtype == read.dtype


def _all(depth: int) -> Iterator[Case]:
    chains = itertools.product(VIEWS, repeat=depth)
    for chain, base in itertools.product(chains, BASES):
        if _views_of(Case(base, chain, "fill", "clone")) is None:
            continue
        for change, kind in itertools.product(CHANGES, KINDS):
            yield Case(base, chain, change, kind)


def _drawn(depth: int, draw: random.Random) -> Iterator[Case]:
    while True:
        chain = tuple(draw.choice([*VIEWS]) for _ in range(depth))
        yield Case(
            draw.choice([*BASES]), chain, draw.choice([*CHANGES]), draw.choice(KINDS), draw.random() < 0.3
        )


def _views_of(case: Case) -> torch.Tensor | None:
    """Return the view that ``case`` changes; None if there is no such view of its base."""
    reads_gaps = case.base == "gaps" and any(name.startswith("as_strided") for name in case.views)
    if case.kind == "train input" and (reads_gaps or case.base in OVERLAPPING):
        return None
    value = BASES[case.base]().detach()
    try:
        for name in case.views:
            value = VIEWS[name](value)
    except (RuntimeError, IndexError, ValueError, TypeError):
        return None
    return value


def _program(case: Case) -> Function:
    views, change = (
        [VIEWS[name] for name in case.views],
        (CHANGES if case.read is None else READING)[case.change],
    )
    cloned, no_grad = case.kind in {"clone", "train"}, case.kind == "no_grad"

    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        base = x.clone() if cloned else x
        if case.kind == "changed":
            base.mul_(y.flatten()[0] * 0 + 1 if y.numel() else 1)
        other = base[...]
        whole = base[0]
        view = base
        for make in views:
            view = make(view)
        if case.read is not None:
            y = VIEWS[case.read](base)
        if no_grad:
            with torch.no_grad():
                changed = change(view, base, y)
        else:
            changed = change(view, base, y)
        return base, view, other, whole, changed, view * 1

    return program


def _arguments(case: Case) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """Return the arguments of a case, and what gradients are taken for."""
    base, view = BASES[case.base]().detach(), _views_of(case)
    assert view is not None
    y = (torch.arange(view.numel()).reshape(view.shape) % 5 + 1).to(view.dtype)
    sources = []
    if (case.trains or case.kind == "no_grad") and _differentiable(base):
        sources.append(base.requires_grad_())
    if case.trains and _differentiable(y):
        sources.append(y.requires_grad_())
    x = base
    if case.kind == "train input":
        x = torch.empty_strided(base.shape, base.stride(), dtype=base.dtype).copy_(base)
    return x, y, sources


def _differentiable(tensor: torch.Tensor) -> bool:
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def _run(case: Case, function: Function) -> Any:
    x, y, sources = _arguments(case)
    try:
        results = function(x, y)
    except Exception as error:
        return type(error).__name__, str(error).partition("\n")[0], x.detach(), None
    leaves = torch.utils._pytree.tree_leaves(results)
    tensors = [x, *(result for result in leaves if torch.is_tensor(result))]
    values = [tensor.detach().clone() for tensor in tensors]
    return tensors, _places(tensors), values, _gradients(tensors, sources)


def _places(tensors: list[torch.Tensor]) -> list[Any]:
    objects, storages = [id(t) for t in tensors], [t.untyped_storage()._cdata for t in tensors]
    return [
        (
            objects.index(id(t)),
            storages.index(t.untyped_storage()._cdata),
            t.dtype,
            t.shape,
            [s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1 and t.numel()],
            t.storage_offset(),
            _history(t),
        )
        for t in tensors
    ]


def _history(tensor: torch.Tensor) -> Any:
    try:
        return tensor.requires_grad, tensor.is_leaf
    except RuntimeError as error:  # views of no_grad whose base was changed
        return str(error).partition("\n")[0]


def _gradients(tensors: list[torch.Tensor], sources: list[torch.Tensor]) -> Any:
    found = []
    for result in tensors:
        if _history(result) not in {(True, False)} or result.numel() == 0 or not sources:
            continue
        tangent = (torch.arange(result.numel()).reshape(result.shape) + 1).to(result.dtype)
        try:
            found += torch.autograd.grad(result, sources, tangent, retain_graph=True, allow_unused=True)
        except RuntimeError as error:
            found.append(type(error).__name__)
    return found


def differences(case: Case, backend: str = "aot_eager") -> str | None:
    """Return what differs between eager and the compiled program of ``case``; None if nothing does."""
    program = _program(case)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        expected = _run(case, program)
        actual = _run(case, fxstack.compile(program, backend=backend, dynamic=case.dynamic))
    refused = [str(warning.message) for warning in warned if "overlap in part" in str(warning.message)]
    if refused and not _may_be_refused(case):
        return refused[0].partition("\n")[0]
    if isinstance(expected[0], str) or isinstance(actual[0], str):
        if expected[:2] == actual[:2] and torch.equal(expected[2], actual[2]):
            return None
        return f"{_short(actual)} is not {_short(expected)}"
    for number, (got, wanted) in enumerate(zip(actual[1], expected[1], strict=True)):
        if got != wanted:
            return f"place {number}: {got} is not {wanted}"
    for what in (2, 3):
        for number, (got, wanted) in enumerate(zip(actual[what], expected[what], strict=True)):
            if not _same(got, wanted):
                return f"{('value', 'gradient')[what - 2]} {number}: {got} is not {wanted}"
    return None


def _may_be_refused(case: Case) -> bool:
    """Whether the change of ``case`` reads and writes one memory, or the base has no memory of its own."""
    base = BASES[case.base]().detach()
    if case.kind in {"clone", "train"}:
        base = base.clone()
    read = base if case.read is None else VIEWS[case.read](base)
    view = base
    for name in case.views:
        view = VIEWS[name](view)
    if case.dynamic and any(name.startswith(UNDECIDED) for name in (*case.views, case.read or "")):
        return True
    same = case.views == (case.read,) and case.change in ELEMENTWISE
    return not same and not _bytes(view).isdisjoint(_bytes(read))


def _bytes(tensor: torch.Tensor) -> set[int]:
    """Return the places of all bytes of a tensor in its storage."""
    width = tensor.element_size()
    places = [tensor.storage_offset() * width]
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        places = [place + stride * width * number for place in places for number in range(size)]
    return {place + byte for place in places for byte in range(width)}


def _short(outcome: Any) -> str:
    return ": ".join(outcome[:2]) if isinstance(outcome[0], str) else "a result"


def _same(got: Any, wanted: Any) -> bool:
    if not (torch.is_tensor(got) and torch.is_tensor(wanted)):
        return got is wanted or got == wanted
    return got.shape == wanted.shape and torch.allclose(got, wanted, equal_nan=True)
