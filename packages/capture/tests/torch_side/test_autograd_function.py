"""Custom autograd functions end to end: one node, guarded Python, exact values and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fxstack_capture

SCALE = 2.0
LOG = []


class Old(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return x * x * n * SCALE

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g * ctx.n * SCALE, None


class New(torch.autograd.Function):
    @staticmethod
    def forward(x, y):
        return x * y, x + 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, g, _):
        x, y = ctx.saved_tensors
        return g * y, g * x


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.add_(1)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 3


class Logs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        LOG.append(1)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


PROGRAMS = {
    "old": lambda x: Old.apply(x.sin(), 3) + 1,
    "new": lambda x: New.apply(x, x * 2)[0] * New.apply(x, x * 2)[1],
    "dirty": lambda x: Dirty.apply(x * 2) + x,
    "logs": lambda x: Logs.apply(x) + 1,
}


def check(compiled, fn):
    x = torch.randn(3, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    a, b = fn(x), compiled(y)
    assert torch.equal(a, b)
    a.sum().backward()
    b.sum().backward()
    assert torch.equal(x.grad, y.grad)


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_eager(name):
    graphs = []
    compiled = fxstack_capture.optimize(lambda gm, _: (graphs.append(gm), gm)[1])(PROGRAMS[name])
    for _ in range(3):
        check(compiled, PROGRAMS[name])
    if name != "logs":
        assert len(graphs) == 1


def test_effects_happen_once_a_call():
    compiled = fxstack_capture.optimize()(PROGRAMS["logs"])
    LOG.clear()
    for _ in range(3):
        compiled(torch.ones(2))
    assert len(LOG) == 3


def test_what_the_methods_read_is_guarded(monkeypatch):
    compiled = fxstack_capture.optimize()(PROGRAMS["old"])
    check(compiled, PROGRAMS["old"])
    monkeypatch.setitem(globals(), "SCALE", 7.0)
    check(compiled, PROGRAMS["old"])


class CompiledBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        twice = x + x
        ctx.save_for_backward(twice, x)
        return twice.sin()

    @staticmethod
    @fxstack_capture.optimize(fullgraph=True)
    def backward(ctx, g):
        twice, x = ctx.saved_tensors
        return g * twice.cos() * 2 + x


def test_a_backward_that_is_compiled_itself_reads_what_was_saved():
    for _ in range(2):
        x = torch.randn(3, requires_grad=True)
        CompiledBackward.apply(x).sum().backward()
        assert torch.allclose(x.grad, 2 * torch.cos(2 * x) + x)


class Settings:
    def __init__(self, scale, tensors, inner=None):
        self.scale = scale
        self.tensors = tensors
        self.inner = inner
        self.deferred = object()

    def scaled(self, x):
        return x * self.scale


class WithSettings(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, settings, function):
        ctx.settings = settings
        ctx.save_for_backward(settings.inner.tensors[0])
        return function(settings.scaled(x)) * settings.tensors[0] + settings.inner.scale

    @staticmethod
    def backward(ctx, g):
        (inner,) = ctx.saved_tensors
        return g * inner * ctx.settings.tensors[0] * ctx.settings.scale, None, None


def with_settings(x, settings):
    return WithSettings.apply(x, settings, torch.sin)


def with_changed_settings(x, settings):
    settings.scale = settings.scale + 1
    settings.tensors.append(x)
    settings.inner.extra = x
    del settings.deferred
    return WithSettings.apply(x, settings, torch.cos)


@pytest.mark.parametrize("fn", [with_settings, with_changed_settings])
def test_objects_and_functions_are_arguments(fn):
    graphs = []
    backend = lambda gm, _: (graphs.append(gm), gm)[1]  # noqa: E731
    compiled = fxstack_capture.optimize(backend, fullgraph=True)(fn)

    def made(i):
        inner = Settings(0.5 + i, [torch.ones(3) * i])
        return Settings(2.0, [torch.ones(3) + i], inner)

    for i in range(3):
        check(lambda x, i=i: compiled(x, made(i)), lambda x, i=i: fn(x, made(i)))
    assert len(graphs) <= 2  # the number that changed is dynamic at the second call


class Counts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, settings):
        settings.scale += 1
        return x * settings.scale

    @staticmethod
    def backward(ctx, g):
        return g, None


def test_an_object_that_the_function_changes_is_left_to_eager():
    def fn(x):
        settings = Settings(1.0, [])
        return Counts.apply(x, settings) * settings.scale

    check(fxstack_capture.optimize()(fn), fn)
    with pytest.raises(fxstack_capture.Unsupported):
        fxstack_capture.optimize(fullgraph=True)(fn)(torch.ones(2, requires_grad=True))


class Appends(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, log):
        log.append(len(log))
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2, None


class Counter:
    __slots__ = ("count",)

    def __init__(self):
        self.count = 0

    def append(self, _):
        self.count += 1

    def __len__(self):
        return self.count


@pytest.mark.parametrize("make", [list, Counter])
def test_what_the_trace_made_and_the_function_changes_is_changed_once(make):
    def fn(x):
        log = make()
        return Appends.apply(Appends.apply(x, log), log) * len(log)

    check(fxstack_capture.optimize()(fn), fn)


def test_a_second_write_to_what_the_trace_has_written_is_an_effect():
    counts = [0]

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            counts[0] += 1
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    def fn(x):
        counts[0] += 1
        return Twice.apply(x) * counts[0]

    compiled = fxstack_capture.optimize()(fn)
    assert [compiled(torch.ones(())).item() for _ in range(3)] == [4.0, 8.0, 12.0]
    assert counts == [6]


class Unchecked(torch.autograd.Function):
    """Writes past the version counter and returns its argument, as torchdiffeq's adaptive solvers do."""

    @staticmethod
    def forward(ctx, scratch, value, column):
        ctx.column = column
        scratch.data[:, column] = value
        return scratch

    @staticmethod
    def backward(ctx, g):
        return g, g[:, ctx.column], None


def test_a_view_that_a_function_made_of_a_tensor_without_history_has_a_history():
    def f(k, w):
        tracked = k.requires_grad, k.is_leaf, k._is_view()
        return Unchecked.apply(k, (k[:, 0] * w).sin(), 1).sum(-1), tracked

    def run(f):
        w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
        out, tracked = f(Unchecked.apply(torch.zeros(3, 2), w * 2, 0), w)
        out.sum().backward()
        return out.tolist(), w.grad.tolist(), tracked

    assert run(fxstack_capture.optimize()(f)) == run(f)


class Reversed(torch.autograd.Function):
    """Its gradient is turned around, by a strength that training changes."""

    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        ctx.kind = type(strength)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        assert ctx.kind is type(ctx.strength)
        return -ctx.strength * gradient, None


@pytest.mark.parametrize("kind", [float, int, np.float64, np.float32])
def test_a_number_that_changes(kind):
    def loss(weight, strength):
        return (Reversed.apply(weight * 2, strength) ** 2).sum()

    graphs = []
    compiled = fxstack_capture.optimize(lambda graph, _: graphs.append(graph) or graph.forward)(loss)
    for strength in map(kind, (0.5, 1.25, 2.5, 3.75)):
        plain, ours = (torch.arange(3.0, requires_grad=True) for _ in range(2))
        loss(plain, strength).backward()
        compiled(ours, strength).backward()
        assert torch.equal(plain.grad, ours.grad)
    assert len(graphs) <= (2 if kind in (float, int) else 4)
