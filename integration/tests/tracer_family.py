"""Other tracers and modes around compiled calls: every tracer or mode with every kind of callable, against eager.

A subject is made twice, plain and with a part of it compiled. ``differences`` compares the results, and what the tracer saw.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode

import fxstack

Make = Callable[[Any], Any]
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def _function(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * x.cos()


class _Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(4, 4)
        self.scale = torch.nn.Parameter(torch.full((4,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu() * self.scale


class _Outer(torch.nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 1


class _OfParameters(torch.nn.Module):
    """A compiled call that gets no tensor of the tracer."""

    def __init__(self, compile_: Make) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(4.0))
        self.doubled = compile_(self._doubled)

    def _doubled(self) -> torch.Tensor:
        return self.weight.sin() * 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.doubled()


def _breaking(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    fxstack.graph_break()
    return y.exp()


def _called(inner: Any) -> Any:
    return lambda x: inner(x) + 1


SUBJECTS: dict[str, Callable[[Make], Any]] = {
    "function": lambda compile_: compile_(_function),
    "module": lambda compile_: compile_(_Layer()),
    "module inside": lambda compile_: _Outer(compile_(_Layer())),
    "function inside": lambda compile_: _Outer(compile_(_function)),
    "function called": lambda compile_: _called(compile_(_function)),
    "of parameters": _OfParameters,
    "graph break": lambda compile_: _Outer(compile_(_breaking)),
}


class _Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class _Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


def _under(make: Callable[[], Any], f: Any) -> Any:
    with make() as mode:
        result = f(X)
    return result, getattr(mode, "seen", None)


def _calls(graph: torch.fx.Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes if node.op.startswith("call")]


def _of_graph(module: torch.fx.GraphModule) -> Any:
    return module(X), _calls(module.graph)


def _scripted(f: Any, x: torch.Tensor = X) -> Any:
    traced = torch.jit.trace(f, (x,))
    return traced(X), [n.kind() for n in traced.inlined_graph.nodes() if "aten" in n.kind()]


def _exported(f: Any, **options: Any) -> Any:
    module = f if isinstance(f, torch.nn.Module) else _Outer(f)
    program = torch.export.export(module, (X,), strict=False, **options)
    return program.module()(X), _calls(program.graph)


def _fake(f: Any) -> Any:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        return [*f(mode.from_tensor(X)).shape]


def _all_inlined(f: Any) -> Any:
    class Inlining(torch.fx.Tracer):
        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            return False

    return _calls(Inlining().trace(f if isinstance(f, torch.nn.Module) else _Outer(f)))


def _flops(f: Any) -> int:
    with FlopCounterMode(display=False) as mode:
        f(X)
    return mode.get_total_flops()


def _gradient(f: Any) -> torch.Tensor:
    x = X.clone().requires_grad_()
    f(x).sum().backward()
    assert x.grad is not None
    return x.grad


def _checkpointed(f: Any, **options: Any) -> torch.Tensor:
    return _gradient(lambda x: checkpoint(lambda y: f(f(y.exp())), x, **options))


def _in_anomaly_mode(f: Any) -> torch.Tensor:
    with torch.autograd.set_detect_anomaly(mode=True):
        return _gradient(f)


_SELECTED = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.sin.default])

FORMS: dict[str, Callable[[Any], Any]] = {
    "jit.trace": _scripted,
    "jit.trace with gradient": lambda f: _scripted(f, X.clone().requires_grad_()),
    "make_fx": lambda f: _of_graph(make_fx(f)(X)),
    "make_fx fake": lambda f: _of_graph(make_fx(f, tracing_mode="fake")(X)),
    "make_fx symbolic": lambda f: _of_graph(make_fx(f, tracing_mode="symbolic")(X)),
    "make_fx pre_dispatch": lambda f: _of_graph(make_fx(f, pre_dispatch=True)(X)),
    "make_fx functionalized": lambda f: _of_graph(make_fx(torch.func.functionalize(f))(X)),
    "symbolic_trace": lambda f: _of_graph(torch.fx.symbolic_trace(f)),
    "tracer without leaves": _all_inlined,
    "export": _exported,
    "export dynamic": lambda f: _exported(f, dynamic_shapes=({0: torch.export.Dim("rows")},)),
    "fake mode": _fake,
    "dispatch mode": lambda f: _under(_Operators, f),
    "function mode": lambda f: _under(_Functions, f),
    "flops": _flops,
    "checkpoint": lambda f: _checkpointed(f, use_reentrant=False),
    "checkpoint reentrant": lambda f: _checkpointed(f, use_reentrant=True),
    "checkpoint selective": lambda f: _checkpointed(f, use_reentrant=False, context_fn=_SELECTED),
    "anomaly mode": _in_anomaly_mode,
    "profiler": lambda f: _under(torch.autograd.profiler.profile, f)[0],
    "inference mode": lambda f: _under(torch.inference_mode, f)[0],
}
TRACERS = tuple(FORMS)[:12]
"""Forms around which ``fullgraph=True`` is no error: another tracer wants to see the operators."""
REFUSED = {("symbolic_trace", "function")}
"""FX takes a function of Python or a module as the root of its trace."""


def cases() -> list[tuple[str, str, bool, bool]]:
    """Return forms, subjects, whether the call was compiled before, and whether as one graph."""
    return [
        (form, subject, warm, whole)
        for form in FORMS
        for subject in SUBJECTS
        for warm in (False, True)
        for whole in (False, True)
        if (form, subject) not in REFUSED
        and not (whole and (form not in TRACERS or subject == "graph break"))
    ]


def differences(form: str, subject: str, warm: bool, whole: bool, backend: str = "aot_eager") -> str | None:
    """Return what differs from eager, None if nothing does."""
    compile_ = functools.partial(fxstack.compile, backend=backend, fullgraph=whole)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, actual = (_outcome(form, subject, make, warm) for make in (_plain, compile_))
    if expected[1] != actual[1]:
        return f"{actual[1]} is not {expected[1]}"
    for got, wanted in zip(actual[0], expected[0], strict=True):
        same = torch.allclose(got, wanted, rtol=1e-3, atol=1e-5) if torch.is_tensor(wanted) else got == wanted
        if not same:
            return f"{got} is not {wanted}"
    return None


def _plain(fn: Any) -> Any:
    return fn


def _outcome(form: str, subject: str, compile_: Make, warm: bool) -> tuple[list[Any], Any]:
    """The leaves of the result, and the exception if one is raised."""
    try:
        f = SUBJECTS[subject](compile_)
        if warm:
            f(X)
            _gradient(f)
        leaves, spec = pytree.tree_flatten(FORMS[form](f))
    except Exception as error:  # what is raised is compared
        return [], f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return leaves, str(spec)
