"""Saved-tensor hooks around compiled calls: inlined, or in eager where they cannot be."""

import math
import warnings
from functools import partial
from typing import NamedTuple

import pytest
import torch
from compare import as_graph, compiled, dynamic
from helpers import run_graph, save_everything
from test_semantics import leaf
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

from fxstack_functionalize import AotOptions, SavedTensorHooks, aot
from fxstack_functionalize.hooks.identity import HookReader, NotTraceableError
from fxstack_interchange import verify

SCALE = 2.0


def to_float8(t):
    return (t.dtype, t.to(torch.float8_e4m3fn))


def from_float8(packed):
    return packed[1].to(packed[0])


def to_int8(t):
    if not t.is_floating_point() or t.numel() < 4:
        return t
    scale = t.abs().amax().clamp(min=1e-12) / 127
    return {"values": (t / scale).round().to(torch.int8), "scale": scale, "dtype": t.dtype}


def from_int8(packed):
    if isinstance(packed, torch.Tensor):
        return packed
    return (packed["values"] * packed["scale"]).to(packed["dtype"])


class Packed(NamedTuple):
    data: torch.Tensor
    shape: torch.Size


def flatten(t):
    return Packed(t.reshape(-1), t.shape)


def unflatten(packed):
    return packed.data.reshape(packed.shape)


def scaled(t):
    return t * SCALE


def unscaled(t):
    return t / SCALE


def without_parameters(t):
    return t if isinstance(t, torch.nn.Parameter) else t * 0


def model(x, w):
    y = (x @ w).sin() @ w
    return (torch.nn.functional.gelu(y).t().exp(),)


def make():
    torch.manual_seed(1)
    return torch.randn(4, 4).requires_grad_(), torch.randn(4, 4).requires_grad_()


def product(x, w):
    return (x * w,)


def gradients(fn, hooks, inputs):
    with saved_tensors_hooks(*hooks):
        y = fn(*inputs)[0]
    y.sum().backward()
    return [y.detach(), *(t.grad for t in inputs)]


def both(ours, eager, hooks):
    return [gradients(fn, hooks, make()) for fn in (ours, eager)]


def as_graph_module(fn):
    return torch.fx.symbolic_trace(fn)


EXACT = [
    (flatten, unflatten),
    (scaled, unscaled),
    (lambda t: t, lambda t: t),
    (lambda t: t.detach(), lambda t: t),
    (lambda t: (t.shape, t.clone(), [None, "word"]), lambda p: p[1].view(p[0])),
    (scaled, partial(lambda s, t: t / s, 2.0)),
    (as_graph_module(lambda t: t * 4), as_graph_module(lambda t: t / 4)),
    (lambda t: t * math.exp(1.5), lambda t: t / math.exp(1.5)),
    (save_on_cpu().pack_hook, save_on_cpu().unpack_hook),
]
LOSSY = [(to_float8, from_float8), (to_int8, from_int8)]
MODES = [SavedTensorHooks.INLINE, SavedTensorHooks.INLINE_BEFORE_PARTITION]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("number", range(len(EXACT)))
def test_exact_hooks(number, mode, recwarn):
    f = compiled(model, make(), saved_tensor_hooks=mode)
    ours, eager = both(f, model, EXACT[number])
    torch.testing.assert_close(ours, eager)
    assert not recwarn.list


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("number", range(len(LOSSY)))
def test_lossy_hooks(number, mode, recwarn):
    f = compiled(model, make(), saved_tensor_hooks=mode)
    ours, eager = both(f, model, LOSSY[number])
    exact = both(model, model, EXACT[2])[0]
    assert not torch.equal(ours[1], exact[1])
    for a, b, c in zip(ours, eager, exact):
        error = float((b - c).abs().max())
        assert float((a - c).abs().max()) <= 3 * error
    assert not recwarn.list


class Watch:
    """A compiler that keeps the graphs; a partitioner that keeps what it was given."""

    def __init__(self):
        self.graphs = []
        self.joints = []

    def compile(self, module, inputs):
        self.graphs.append(module)
        return run_graph(module, inputs)

    def cut(self, joint):
        verify(joint)
        self.joints.append(joint)
        return save_everything(joint)


def watched(hooks, fn=model, inputs=make, **options):
    watch = Watch()
    f = compiled(fn, inputs(), compiler=watch.compile, partitioner=watch.cut, **options)
    gradients(f, hooks, inputs())
    return watch, f


def dtypes_saved(graph):
    values = graph.graph.output_node().args[0][1:]
    return [node.meta["val"].dtype for node in values]


def test_the_forward_packs_and_the_backward_unpacks():
    watch, _ = watched((to_float8, from_float8))
    forward, backward = watch.graphs[-2:]
    assert set(dtypes_saved(forward)) == {torch.float8_e4m3fn}
    placeholders = backward.graph.find_nodes(op="placeholder")
    assert {n.meta["val"].dtype for n in placeholders[:-1]} == {torch.float8_e4m3fn}


def test_the_partitioner_sees_hooks_in_the_joint_graph():
    watch, _ = watched((to_float8, from_float8), saved_tensor_hooks=MODES[1])
    nodes = watch.joints[-1].graph_module.graph.nodes
    assert any(n.meta["val"].dtype == torch.float8_e4m3fn for n in nodes if n.op == "call_function")
    assert {n.meta.get("recompute") for n in nodes} == {None, "must_recompute"}


def test_the_same_hooks_are_compiled_once():
    watch, f = watched((to_int8, from_int8))
    before = len(watch.graphs)
    gradients(f, (to_int8, from_int8), make())
    assert len(watch.graphs) == before


def fresh_closure(scale):
    return (lambda t: t * scale), (lambda t: t / scale)


def test_equal_closures_are_the_same_hooks():
    watch, f = watched(fresh_closure(2.0))
    before = len(watch.graphs)
    gradients(f, fresh_closure(2.0), make())
    assert len(watch.graphs) == before
    gradients(f, fresh_closure(4.0), make())
    assert len(watch.graphs) == before + 2


def test_changed_global_is_seen(monkeypatch):
    hooks = (scaled, lambda t: t / 2)
    _, f = watched(hooks, product)
    torch.testing.assert_close(*both(f, product, hooks))
    monkeypatch.setitem(globals(), "SCALE", 6.0)
    torch.testing.assert_close(*both(f, product, hooks))


def test_without_hooks_after_hooks():
    _, f = watched((to_int8, from_int8))
    x, w = make()
    f(x, w)[0].sum().backward()
    a, b = make()
    model(a, b)[0].sum().backward()
    torch.testing.assert_close((x.grad, w.grad), (a.grad, b.grad))


def test_only_the_innermost_hooks_count():
    _, f = watched((to_int8, from_int8))
    with saved_tensors_hooks(lambda t: t * 0, lambda t: t * 0):
        ours, eager = both(f, model, (scaled, unscaled))
    torch.testing.assert_close(ours, eager)


def test_parameters_are_recognised():
    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.w = torch.nn.Parameter(torch.randn(4, 4))

        def forward(self, x):
            return x * self.w

    from fxstack_functionalize import aot_module

    results = []
    for wrap in (lambda m: aot_module(m, fw_compiler=run_graph, partitioner=save_everything), lambda m: m):
        module, x = Module(), leaf(4, 4)
        with saved_tensors_hooks(without_parameters, lambda t: t):
            y = wrap(module)(x)
        y.sum().backward()
        results.append((x.grad, module.w.grad))
    torch.testing.assert_close(*results)


def test_effects_happen_at_every_call():
    seen = []
    hooks = (lambda t: (seen.append(t.shape), t)[1]), (lambda t: t)
    f = compiled(model, make())
    with pytest.warns(UserWarning, match="'seen', a list that may change"):
        gradients(f, hooks, make())
    first = len(seen)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradients(f, hooks, make())
    assert first
    assert len(seen) == 2 * first


def reads_data(t):
    return t * float(t.sum() > 0)


def draws(t):
    return t + torch.rand_like(t)


def changes(t):
    return t.add_(0)


def test_changing_what_is_packed_is_eagers_error():
    f = compiled(model, make())
    for fn in (f, model):
        with pytest.raises(RuntimeError, match="modifying its input in place"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gradients(fn, (changes, lambda t: t), make())


@pytest.mark.parametrize("pack", [reads_data, draws])
def test_hooks_that_cannot_be_traced(pack):
    f = compiled(model, make())
    with pytest.warns(UserWarning, match="called in eager"):
        gradients(f, (pack, lambda t: t), make())


@pytest.mark.parametrize(
    ("unpack", "text"),
    [(lambda t: t.half(), "float16"), (lambda t: t[:1], "size"), (lambda t: t.shape, "not a tensor")],
)
def test_wrong_unpacking_is_an_error(unpack, text):
    f = compiled(model, make())
    with pytest.warns(UserWarning, match=text), pytest.raises((RuntimeError, TypeError)):
        gradients(f, (lambda t: t, unpack), make())


def counted():
    count = 0

    def pack(t):
        nonlocal count
        count += 1
        return t

    return pack


def forgetting():
    limit = 1

    def pack(t):
        nonlocal limit
        del limit
        return t

    return pack


@pytest.mark.parametrize(
    ("hook", "reason"),
    [
        (forgetting(), "assigns to 'limit'"),
        (counted(), "assigns to 'count'|uses 'count'"),
        (lambda t: print(t), "uses 'print'"),
        (lambda t: t.requires_grad, "reads .requires_grad"),
        (lambda t: torch.save(t, "x"), "STORE|save|effect|may change|plain function|instruction"),
        (dict().get, "builtin_function_or_method"),
        (lambda t, seen=[]: t, "a list that may change"),
    ],
)
def test_reasons(hook, reason):
    with pytest.raises(NotTraceableError, match=reason):
        HookReader().identity(hook)


def test_backward_twice_with_inlined_hooks():
    _, f = watched((to_int8, from_int8))
    with saved_tensors_hooks(scaled, unscaled):
        y = f(*make())[0].sum()
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_checkpoint_around_a_compiled_call(recwarn):
    f = compiled(model, make())
    results = []
    for fn in (f, model):
        x, w = make()
        body = lambda a, b, fn=fn: fn(a, b)[0]
        y = torch.utils.checkpoint.checkpoint(body, x, w, use_reentrant=False)
        y.sum().backward()
        results.append((x.grad, w.grad))
    torch.testing.assert_close(*results)
    assert not recwarn.list


def squared(t):
    return t @ t if t.dim() == 2 else t


def test_pack_runs_under_the_callers_autocast():
    hooks = (squared, lambda t: t.float())
    x, w = make()
    with torch.autocast("cpu", torch.bfloat16):
        f = compiled(product, (x, w))
        torch.testing.assert_close(*both(f, product, hooks), rtol=0, atol=0)


def test_option_as_a_word():
    assert AotOptions(saved_tensor_hooks="eager").saved_tensor_hooks is SavedTensorHooks.EAGER
    with pytest.raises(ValueError, match="must be one of 'inline'"):
        AotOptions(saved_tensor_hooks="never")


def rounded_if_long(t):
    return t.to(torch.bfloat16) if t.shape[0] > 5 else t


def test_hooks_that_decide_by_a_symbolic_size_after_compilation_run_in_eager():
    function = aot(
        as_graph(lambda x: (x.sin(),), 1),
        dynamic([leaf(4)]),
        fw_compiler=run_graph,
        partitioner=save_everything,
    )
    for length in (4, 9):
        x = leaf(length)
        with (
            warnings.catch_warnings(record=True) as caught,
            saved_tensors_hooks(rounded_if_long, lambda t: t.float()),
        ):
            warnings.simplefilter("always")
            (grad,) = torch.autograd.grad(function(x)[0].sum(), x)
        assert len(caught) == (length == 4)
        assert all("keeps symbolic" in str(warning.message) for warning in caught)
        assert torch.equal(grad, x.detach().cos()) == (length <= 5)
