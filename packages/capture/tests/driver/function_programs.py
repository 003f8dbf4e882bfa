"""Custom autograd functions whose methods break: every use of ``ctx`` with a break at every place.

The methods run as frames of their own then, with a new ``ctx`` in each call. ``compare`` calls a program several times,
plainly and compiled: results, gradients and what ``ctx`` holds must be the same, and graphs must stop being made.
"""

import itertools
import warnings
from contextlib import nullcontext

import torch
from counting import Counting
from same import difference

import fxstack_capture as fx

CALLS = 10
SETTLED = 7
"""Calls by which all graphs have been made: with gradients and without, and of two numbers each."""

USES = {
    "number": ("ctx.n = n", "g = g * ctx.n"),
    "text": ("ctx.name = 'a'", "g = g if ctx.name == 'a' else g * 2"),
    "tensor": ("ctx.t = x.sin()", "g = g * ctx.t"),
    "list": ("ctx.ts = [x.sin(), x.cos()]", "g = g * ctx.ts[0] + ctx.ts[1]"),
    "function": ("ctx.f = torch.sin", "g = ctx.f(g)"),
    "module": ("ctx.m = layer", "g = ctx.m(g)"),
    "overwrite": ("ctx.n = 1; ctx.n = ctx.n + n", "g = g * ctx.n"),
    "remove": ("ctx.n = 1; ctx.k = 2; del ctx.n", "g = g * ctx.k + hasattr(ctx, 'n')"),
    "dict": ("ctx.__dict__.update(n=n)", "g = g * vars(ctx)['n']"),
    "present": ("ctx.n = 3 if hasattr(ctx, 'n') else 2", "g = g * getattr(ctx, 'n', 5)"),
    "missing": ("ctx.n = getattr(ctx, 'm', 7)", "g = g * ctx.n"),
    "unknown": ("try: ctx.m\n    except AttributeError as e: ctx.n = len(str(e))", "g = g * ctx.n"),
    "save": ("ctx.save_for_backward(x)", "(t,) = ctx.saved_tensors; g = g * t"),
    "save two": ("ctx.save_for_backward(x, None)", "t, _ = ctx.saved_tensors; g = g * t"),
    "save new": ("ctx.save_for_backward(x * 2)", "g = g * ctx.saved_tensors[0]"),
    "save again": (
        "ctx.save_for_backward(x); ctx.save_for_backward(*ctx.to_save, x + 1)",
        "a, b = ctx.saved_tensors; g = g * a * b",
    ),
    "save hooked": (
        "ctx.save_for_backward(x, x * 2)",
        "a, b = ctx.saved_tensors; g = g * a * b + ctx.saved_tensors[1]",
    ),
    "needs": ("ctx.needed = ctx.needs_input_grad", "g = g * sum(ctx.needed)"),
    "flag": ("ctx.set_materialize_grads(False)", "g = g * 2"),
    "flag read": ("ctx.n = hasattr(ctx, 'materialize_grads') + 1", "g = g * ctx.n"),
    "class": ("ctx.n = type(ctx).__name__", "g = g * len(ctx.n)"),
    "same": ("ctx.me = [ctx is ctx, ctx == 1]", "g = g * len(ctx.me)"),
    "helper": ("keep(ctx, x)", "g = used(ctx, g)"),
    "held": ("HELD.append(ctx); ctx.n = n", "g = g * (HELD.pop() is ctx)"),
    "loop": (
        "ctx.ts = []\n    for i in range(n):\n        ctx.ts.append(x.sin()); x = x * 2; BREAK()",
        "for t in ctx.ts:\n        g = g * t; BREAK()",
    ),
    "solver": (
        "for i in range(n):\n        x = x + layer(x); BREAK()\n    ctx.n = n; ctx.save_for_backward(x)",
        "(t,) = ctx.saved_tensors\n    for _ in range(ctx.n):\n        g = g + 0.1 * t; BREAK()",
    ),
}
PLACES = ("before", "between", "after", "backward", "everywhere", "apply")

SOURCE = """
HELD, UNPACKED = [], []

def keep(ctx, x):
    ctx.kept = x.sin()
    BREAK()
    ctx.twice = ctx.kept * 2

def used(ctx, g):
    BREAK()
    return g * ctx.kept + ctx.twice

def forward(ctx, x, n):
    {before}
    y = x * 2
    {forward}
    {between}
    y = y + x.cos()
    {after}
    return y

def backward(ctx, g):
    g = g * 2
    {backward_break}
    {backward}
    return g, None

Function = type("Function", (torch.autograd.Function,), dict(
    forward=staticmethod(forward), backward=staticmethod(backward)))

def f(x, n):
    x = x.exp()
    {apply}
    return Function.apply(x, n) * 2

def pack(tensor):
    return (tensor,)

def unpack(pair):
    UNPACKED.append(1)
    return pair[0]
"""

FAMILY = tuple(itertools.product(USES, PLACES))


def source(use, place):
    forward, backward = USES[use]

    def at(*places):
        return "BREAK()" if place in ("everywhere", *places) else "pass"

    return SOURCE.format(
        forward=forward,
        backward=backward,
        before=at("before"),
        between=at("between"),
        after=at("after"),
        backward_break=at("backward"),
        apply="BREAK()" if place == "apply" else "pass",
    )


def _program(text, stop):
    torch.manual_seed(0)
    namespace = {"torch": torch, "BREAK": stop, "layer": torch.nn.Linear(3, 3)}
    exec(compile(text, "<string>", "exec"), namespace)
    return namespace["f"]


def _call(f, number, use):
    x = torch.linspace(0.1, 1, 3).requires_grad_(number % 4 < 2)
    hooks = nullcontext()
    names = getattr(f, "__wrapped__", f).__globals__
    if use == "save hooked" and number % 4 == 1:
        hooks = torch.autograd.graph.saved_tensors_hooks(names["pack"], names["unpack"])
    with hooks:
        y = f(x, 2 + number % 2)
    if not y.requires_grad:
        return y, None, 0
    y.sum().backward()
    return y.detach(), x.grad, len(names["UNPACKED"])


def compare(use, place):
    """None, or what differs."""
    text = source(use, place)
    backend = Counting()
    plain = _program(text, lambda: None)
    compiled = fx.optimize(backend)(_program(text, fx.graph_break))
    made = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(CALLS):
            expected, found = _call(plain, number, use), _call(compiled, number, use)
            made.append(len(backend.graphs))
            text = difference(found, expected)
            if text is not None:
                return f"call {number}: {text}"
    if made[SETTLED] != made[-1]:
        return f"graphs without end: {made}"
    return f"warned: {caught[0].message}" if caught else None
