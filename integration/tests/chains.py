"""Chains of ``n`` operators of one kind: what they compute, and how much work compiling them is.

``CHAINS`` has functions of ``(x, n)`` by name; ``work(name, n, ...)`` counts what one becomes in each stage, and takes the time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from unittest import mock

import torch
import torch.nn.functional as F

import fxstack
import fxstack_inductor
from fxstack import pipeline
from fxstack_inductor.schedule.steps import KernelStep

ROWS, COLUMNS = 12, 16


def repeated(step):
    """``step(x, i)`` applied ``n`` times."""

    def run(x, n):
        for i in range(n):
            x = step(x, i)
        return x

    return run


def written(write):
    """``write(m, x, i)`` in place, ``n`` times, to a copy of ``x``."""

    def run(x, n):
        m = x * 1
        for i in range(n):
            write(m, x, i)
        return m

    return run


def set_slice(m, x, i):
    m[i % 5 : i % 5 + 3] = i


def set_block(m, x, i):
    a, b = i % 7, (i * 5) % 11
    m[a : a + 3, b : b + 4] = i


def set_cube(m, x, i):
    a, b, c = i % 2, i % 5, i % 3
    m.view(3, 4, 16)[a : a + 2, b % 3 : b % 3 + 2, c : c + 7] = i


def set_from(m, x, i):
    m[i % 7 : i % 7 + 3] = x[i % 5 : i % 5 + 3] * 2


def set_shifted(m, x, i):
    m[1:] = m[:-1] * 0.5


def set_strided(m, x, i):
    m[i % 3 :: 3, i % 2 :: 2] = i


def set_row(m, x, i):
    m[i % ROWS] = i


def set_row_from_row(m, x, i):
    m[i % ROWS] = m[(i + 1) % ROWS] + 1


def set_element(m, x, i):
    m[i % ROWS, (3 * i) % COLUMNS] = 1.5


def set_masked(m, x, i):
    m[m > 2 + i] = 0.5


def put(m, x, i):
    m[torch.arange(3) + i % 4] = 0.25


def put_more(m, x, i):
    m.index_put_((torch.arange(3) + i % 4,), x[:3], accumulate=True)


def add_rows(m, x, i):
    m.index_add_(0, torch.arange(3) + i % 4, x[:3])


def scatter(m, x, i):
    m.scatter_(0, torch.arange(COLUMNS)[None] % ROWS, 1.0 + i)


def fill_diagonal(m, x, i):
    m.diagonal(i % 3).fill_(i)


def add_to(m, x, i):
    m.add_(x)


def scale_columns(m, x, i):
    m[:, i % COLUMNS].mul_(1.01)


def copy_into(m, x, i):
    m[2:6].copy_(x[i % 4 : i % 4 + 4] + m[2:6])


def diamond(x, i):
    y = x * 0.5
    return y.sin() + y.cos()


def two_of_each(x, i):
    a, b = x * 0.5, x + 1
    return (a + b) * 0.5 + (a - b)


def unbound(x, n):
    for _ in range(n):
        x = torch.stack([row * 0.9 for row in x.unbind(0)])
    return x


def split_cat(x, i):
    a, b = x.split([ROWS // 3, ROWS - ROWS // 3])
    return torch.cat([b, a * 0.9])


def norm(x, i):
    return x - x.mean(1, keepdim=True)


def grown(x, n):
    parts = x
    for i in range(n):
        parts = torch.cat([parts, x[i % ROWS][None] * i])
    return parts.sum(0)


def row_by_row(x, n):
    """``n`` rows, each changed in place by itself, where no gradient tells views of several results apart."""
    with torch.no_grad():
        m = x.detach().repeat(n // ROWS + 1, 1)[:n]
        for row in m:
            row += 1
    return m * x[0]


def listed(x, n):
    return torch.cat([x[i % ROWS] * i for i in range(n)])


def added(x, n):
    return sum((x[i % ROWS] * i for i in range(n)), x[0])


def padded(x, n):
    for i in range(n):
        x = F.pad(x, (1, 0) if i % 2 else (0, 1))
    return x


def all_kept(x, n):
    kept = []
    for _ in range(n):
        x = x.sin()
        kept.append(x)
    return tuple(kept)


def totals(x, n):
    return torch.stack([(x * i).sum() for i in range(n)])


def dense(x, n):
    """Each value reads the four before it."""
    values = [x, x + 1, x + 2, x + 3]
    for _ in range(n):
        values.append(sum(values[-4:]) * 0.25)
    return values[-1]


def fibonacci(x, n):
    a, b = x, x * 0.5
    for _ in range(n):
        a, b = b, (a + b) * 0.6
    return b


CHAINS = {
    "pointwise": repeated(lambda x, i: x.sin()),
    "pointwise of two": repeated(lambda x, i: x * 0.9 + i),
    "where": repeated(lambda x, i: torch.where(x > i * 0.1, x, x * 0.9)),
    "where of constants": repeated(lambda x, i: torch.where(x > 5.0 + i, 1.0, x)),
    "clamp": repeated(lambda x, i: x.clamp(-3 - i, 3 + i)),
    "convert": repeated(lambda x, i: x.double().float()),
    "convert to half": repeated(lambda x, i: x.half().float()),
    "diamond": repeated(lambda x, i: x + x.sin() * 0.1),
    "diamond of two": repeated(diamond),
    "diamond of four": repeated(two_of_each),
    "product with itself": repeated(lambda x, i: x * x * 0.5),
    "dense": dense,
    "fibonacci": fibonacci,
    "transpose": repeated(lambda x, i: x.t() * 0.9),
    "transpose of sums": repeated(lambda x, i: x.t().contiguous().t() + 1),
    "view": repeated(lambda x, i: x.view(-1).view(ROWS, COLUMNS)),
    "view with steps": repeated(lambda x, i: x.reshape(COLUMNS, ROWS).reshape(ROWS, COLUMNS) * 0.9),
    "reshape of transpose": repeated(lambda x, i: x.t().reshape(ROWS, COLUMNS)),
    "expand": repeated(lambda x, i: x[:1].expand(ROWS, COLUMNS) * 0.9),
    "slice and pad": repeated(lambda x, i: F.pad(x[:, 1:], (0, 1))),
    "pad": padded,
    "roll": repeated(lambda x, i: x.roll(1, 0)),
    "flip": repeated(lambda x, i: x.flip(0) * 0.9),
    "cat of slices": repeated(lambda x, i: torch.cat([x[1:], x[:1]])),
    "split and cat": repeated(split_cat),
    "cat that grows": grown,
    "cat of many": listed,
    "stack and unbind": unbound,
    "row by row": row_by_row,
    "sum of many": added,
    "sums of many": totals,
    "sum and add": repeated(lambda x, i: x + x.sum(0) * 0.01),
    "mean and subtract": repeated(norm),
    "softmax": repeated(lambda x, i: x.softmax(1)),
    "max and subtract": repeated(lambda x, i: x - x.amax(0, keepdim=True)),
    "cumsum": repeated(lambda x, i: x.cumsum(0) * 0.1),
    "cumsum of either": repeated(lambda x, i: x.cumsum(i % 2) * 0.1),
    "gather": repeated(lambda x, i: x[torch.arange(ROWS - 1, -1, -1)]),
    "index_select": repeated(lambda x, i: x.index_select(1, torch.arange(COLUMNS) // 2)),
    "product of matrices": repeated(lambda x, i: (x @ x.t()) @ x * 0.01),
    "all kept": all_kept,
    "set slices": written(set_slice),
    "set blocks": written(set_block),
    "set cubes": written(set_cube),
    "set slices from": written(set_from),
    "set shifted": written(set_shifted),
    "set strided": written(set_strided),
    "set rows": written(set_row),
    "set rows from rows": written(set_row_from_row),
    "set elements": written(set_element),
    "set masked": written(set_masked),
    "index_put": written(put),
    "index_put with sums": written(put_more),
    "index_add": written(add_rows),
    "scatter": written(scatter),
    "diagonals": written(fill_diagonal),
    "add in place": written(add_to),
    "scale columns": written(scale_columns),
    "copy into": written(copy_into),
}


@dataclass(frozen=True)
class Work:
    """Counts of what a chain becomes, and seconds by stage (those of the C compiler are not among them)."""

    nodes: int
    kernels: int
    values: int
    text: int
    seconds: dict[str, float]

    def counts(self):
        return {"nodes": self.nodes, "values": self.values, "text": self.text}


def work(name, n, *, trains=False, dynamic=None):
    """What compiling chain ``name`` of length ``n`` makes; nothing is compiled to machine code."""
    made, seconds = [], [0.0]
    options = fxstack_inductor.InductorOptions(use_cache=False)

    def lower(graph_module, *_, **__):
        start = time.perf_counter()
        lowered = fxstack_inductor.lower(graph_module, (), options)
        seconds[0] += time.perf_counter() - start
        made.append(lowered)
        return graph_module.forward

    x = torch.linspace(-1, 1, ROWS * COLUMNS).reshape(ROWS, COLUMNS).requires_grad_(trains)
    compiled = fxstack.compile(lambda x: CHAINS[name](x, n), dynamic=dynamic, options={"use_cache": False})
    with mock.patch.object(pipeline, "compile_graph", lower):
        result = compiled(x)
        if trains:
            start = time.perf_counter()
            whole = result if isinstance(result, torch.Tensor) else sum(r.sum() for r in result)
            whole.sum().backward()
            seconds.append(time.perf_counter() - start)
    log = fxstack.compile_log(compiled)
    assert log.break_count == 0
    found = {stage: log.seconds(stage) for stage in ("capture", "functionalize", "partition")}
    kernels = [s.kernel for m in made for s in m.plan.steps if isinstance(s, KernelStep)]
    return Work(
        sum(len(m.graph.graph.nodes) for m in made),
        len(kernels),
        sum(len(kernel.values) for kernel in kernels),
        sum(len(m.c) for m in made),
        {**found, "lower": seconds[0]},
    )


def difference(name, n, *, trains=False, dynamic=None, options=None):
    """How chain ``name`` compiled differs from eager in values, strides or gradients, or the exception; empty if it does not."""
    chain = lambda x: CHAINS[name](x, n)
    settings = {"optimization": 0, "use_cache": False, "raise_failures": True, **(options or {})}
    compiled = fxstack.compile(chain, dynamic=dynamic, options=settings)
    try:
        got, wanted = _results(compiled, trains), _results(chain, trains)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    for position, (a, b) in enumerate(zip(got, wanted, strict=True)):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return f"{a.dtype} {tuple(a.shape)}, not {b.dtype} {tuple(b.shape)}"
        # A gradient is laid out as the result of which it is the gradient.
        if position < len(got) - trains and a.stride() != b.stride():
            return f"strides {a.stride()}, not {b.stride()}"
        if not torch.allclose(a, b, 1e-4, 1e-5, equal_nan=True):
            return f"off by {(a - b).abs().max().item():.2g}"
    return ""


def _results(run, trains):
    x = torch.linspace(-1, 1, ROWS * COLUMNS).reshape(ROWS, COLUMNS).requires_grad_(trains)
    result = run(x)
    flat = [result] if isinstance(result, torch.Tensor) else list(result)
    if trains:
        weights = [torch.linspace(0.5, 1, r.numel()).reshape(r.shape) for r in flat]
        total = sum((r * w).sum() for r, w in zip(flat, weights, strict=True))
        flat += torch.autograd.grad(total, x)
    return [r.detach() for r in flat]
