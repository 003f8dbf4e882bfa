"""What code does, as JSON: equal for equal code, unequal for what acts otherwise, refused where it may change."""

import dataclasses
import json
import math
import subprocess
import sys
import types
from functools import partial

import pytest
import torch
from torch.nn import functional as F

from fxstack_functionalize import AotOptions, SavedTensorHooks
from fxstack_functionalize.disk.code import CodeReader
from fxstack_interchange import SaveError


def described(value):
    return json.dumps(CodeReader().describe(value, "it"), sort_keys=True)


SCALE, TABLE, HIDDEN = 2.0, {"a": [1, 2]}, object()


def made(text, **names):
    """The function ``f`` of a text, compiled anew, with globals of its own."""
    scope = {"torch": torch, "F": F, "math": math, **names}
    exec(compile(text, f"<{len(names)}>", "exec"), scope)
    return scope["f"]


def closing(value):
    return lambda x: x * value


def again(x):
    return again(x[1:]) if len(x) > SCALE else x


TEXTS = [
    "def f(x, k=3): return torch.relu(x) * k",
    "def f(x):\n    def g(y): return y + x\n    return [g(z) for z in x]",
    "def f(ctx, grad):\n    ctx.k = math.pi\n    return F.softmax(grad, -1)",
    "f = lambda x: torch.ops.aten.sin(x) if isinstance(x, torch.Tensor) else getattr(x, 'y')",
    "def f(x): return x in {'a', 'b', 'cde', 'f'}",
    "def f(x):\n    if x is None: raise ValueError('no')\n    return {1, 2}",
]


@pytest.mark.parametrize("text", TEXTS)
def test_code_that_is_made_again_is_the_same(text):
    assert described(made(text)) == described(made("\n\n" + text, unused=1))


ELSEWHERE = """
import json, math, sys, torch
from torch.nn import functional as F
from fxstack_functionalize.disk.code import CodeReader
for text in json.loads(sys.stdin.read()):
    exec(text)
    print(json.dumps(CodeReader().describe(f, "it"), sort_keys=True))
"""


def test_code_is_the_same_in_another_process():
    given = json.dumps(TEXTS)
    run = [sys.executable, "-c", ELSEWHERE]
    done = subprocess.run(run, input=given, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [described(made(text)) for text in TEXTS]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (made("f = lambda x: x + 1"), made("f = lambda x: x + 2")),
        (made("f = lambda x: x + 1"), made("f = lambda x: x + 1.0")),
        (made("f = lambda x: x + 1"), made("f = lambda x: x - 1")),
        (made("f = lambda x: x.sin()"), made("f = lambda x: x.cos()")),
        (made("f = lambda x, k=1: x + k"), made("f = lambda x, k=2: x + k")),
        (made("f = lambda x, *, k=1: x + k"), made("f = lambda x, *, k=2: x + k")),
        (made("f = lambda x: x + K", K=1), made("f = lambda x: x + K", K=True)),
        (made("f = lambda x: x + K[0]", K=(1,)), made("f = lambda x: x + K[0]", K=(2,))),
        (made("f = lambda x: x[K]", K=((1, 2),)), made("f = lambda x: x[K]", K=((1, 3),))),
        (made("f = lambda x: g(x)", g=closing(1)), made("f = lambda x: g(x)", g=closing(2))),
        (made("f = lambda x: g(x)", g=torch.sin), made("f = lambda x: g(x)", g=torch.cos)),
        (made("f = lambda x: g(x)", g=F.relu), made("f = lambda x: g(x)", g=F.gelu)),
        (made("f = lambda x: m.sin(x)", m=torch), made("f = lambda x: m.sin(x)", m=math)),
        (closing(1), closing(2)),
        (partial(again, 1), partial(again, 2)),
        (partial(again, x=1), partial(again, y=1)),
        (made("f = lambda x: [y for y in x]"), made("f = lambda x: [-y for y in x]")),
    ],
)
def test_code_that_acts_otherwise_is_another(one, other):
    assert described(one) != described(other)


@pytest.mark.parametrize("value", [AotOptions(), SavedTensorHooks.INLINE, AotOptions, F.relu])
def test_records_and_classes_of_these_packages(value):
    use = lambda: made("f = lambda x: K", K=value)
    assert described(use()) == described(use())


def test_records_differ_by_their_fields():
    one, other = (made("f = lambda x: K", K=AotOptions(verify=flag)) for flag in (True, False))
    assert described(one) != described(other)


def test_functions_that_call_themselves():
    assert described(again) == described(again)


@pytest.mark.parametrize(
    "value",
    [
        made("f = lambda x: x + K", K=object()),
        made("f = lambda x: x + K", K=torch.ones(2)),
        made("f = lambda x: K(x)", K=torch.nn.ReLU()),
        made("f = lambda x: print(x)"),
        made("f = lambda x: globals()"),
        made("f = lambda x: missing"),
        made("f = lambda x: sys.path", sys=types.ModuleType("sys")),
        made("def f(x):\n    import os\n    return os"),
        made("def f(x):\n    global K\n    K = x"),
        made("def f(x):\n    class A: pass\n    return A"),
        made("f = lambda x: K.y", K=type("Own", (), {"y": 1})),
        made("f = lambda x: K", K=type("Number", (int,), {})(3)),
        made("f = lambda x: K", K=(object(),)),
        made("f = lambda x: K.append(x)", K=[]),
        made("f = lambda x: K.count", K=dataclasses.make_dataclass("Counter", ["count"])(1)),
        made("f = lambda x: x + K[1]", K={1: 2}),
        HIDDEN,
        torch.nn.Linear(2, 2),
    ],
)
def test_what_may_change_is_refused(value):
    with pytest.raises(SaveError):
        described(value)


def test_a_wrapper_under_the_name_of_a_function_of_torch_is_not_taken_for_it(monkeypatch):
    replacement = made("f = lambda *args: original(*args) + K", original=F.relu, K=object())
    replacement.__module__, replacement.__qualname__ = F.relu.__module__, "relu"
    monkeypatch.setattr(F, "relu", replacement)
    with pytest.raises(SaveError):
        described(made("f = lambda x: F.relu(x)"))


def defined(name, fake, backward=None, scale=1):
    """A custom operator, described while it exists."""
    own = torch.library.custom_op(
        f"fxstack_disk_code::{name}", lambda x: x * scale, mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    own.register_fake(fake)
    if backward is not None:
        own.register_autograd(backward)
    return described(own)


def test_of_an_operator_all_counts_but_its_kernel():
    one = defined("op", lambda x: torch.empty_like(x))
    assert one == defined("op", lambda x: torch.empty_like(x), scale=2)
    assert one != defined("op", lambda x: torch.zeros_like(x))
    assert one != defined("op", lambda x: torch.empty_like(x), lambda ctx, grad: grad)


def test_an_operator_with_a_registration_of_elsewhere_is_refused():
    own = torch.library.custom_op(
        "fxstack_disk_code::more", lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    described(own)
    with torch.library._scoped_library("fxstack_disk_code", "FRAGMENT") as library:
        library.impl("more", lambda x: x * 3, "CPU")
        with pytest.raises(SaveError, match="registrations"):
            described(own)
    described(own)


def test_an_operator_with_a_rule_for_a_mode_is_refused():
    own = torch.library.custom_op(
        "fxstack_disk_code::ruled", lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    own.register_torch_dispatch(torch.utils._python_dispatch.TorchDispatchMode, lambda *args: None)
    with pytest.raises(SaveError, match="registrations"):
        described(own)
