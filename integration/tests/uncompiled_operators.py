"""Programs that call operators with functions inside, and no compiler; prints the outcome of each in a line of JSON.

``uncompiled_outcomes`` runs this file with and without FXSTACK=1. A program is a subject (how operators are called,
also inside of each other) in a form (eager, traced, transformed, exported). The outcome is the exception, or all
values, the names of the operators that a tracer saw, and the text of its graph.

    python integration/tests/uncompiled_operators.py PATTERN EVERY
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch._functorch.aot_autograd import aot_function, make_boxed_compiler
from torch._higher_order_ops import associative_scan, map, scan, while_loop
from torch._higher_order_ops.invoke_subgraph import mark_compile_region
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention.flex_attention import flex_attention
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

Function = Callable[..., Any]
X = torch.arange(12.0).reshape(4, 3) / 7 - 0.5
W = torch.tensor([0.5, -1.0, 2.0])
HOPS = torch.ops.higher_order


# --- subjects: functions of a tensor of 4 by 3 ----------------------------------------------------


def _branch(v: Any) -> Any:
    return torch.cond(v.sum() > 0, lambda v: v.sin(), lambda v: v.cos() + W, (v,))


def _branch_of_two(v: Any) -> Any:
    return torch.cond(
        v[0].sum() < 0, lambda v, w: {"a": v * w, "b": w + 1}, lambda v, w: {"a": v + w, "b": w * 2}, (v, W)
    )


def _loop(v: Any) -> Any:
    return while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, v * 0.5 + W), (torch.tensor(0), v))


def _counted(v: Any) -> Any:
    return while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, v * 2), (0, v))


def _sums(v: Any) -> Any:
    return scan(lambda c, row: (c * 0.5 + row, {"out": c - row}), v[0] * 2, v)


def _sums_back(v: Any) -> Any:
    return scan(lambda c, row: (c + row * W, c * 1), torch.zeros(3), v, reverse=True)


def _products(v: Any) -> Any:
    return associative_scan(lambda a, b: a * b, v, 0, combine_mode="generic")


def _affine(v: Any) -> Any:
    combine = lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1])
    return associative_scan(combine, (v, v + 1), 0, reverse=True, combine_mode="generic")


def _mapped(v: Any) -> Any:
    return map(lambda row, w: (row * w).sin(), v, W)


def _branch_in_loop(v: Any) -> Any:
    return while_loop(
        lambda i, _: i.sum() < 2, lambda i, v: (i + 1, _branch(v)), (torch.zeros((), dtype=torch.int64), v)
    )


def _loop_in_branch(v: Any) -> Any:
    return torch.cond(v.sum() > 0, lambda v: _loop(v)[1], lambda v: v.exp(), (v,))


def _map_in_map(v: Any) -> Any:
    return map(lambda row: map(lambda e: e * e + 1, row), v)


def _scan_in_branch(v: Any) -> Any:
    return torch.cond(v.sum() < 100, lambda v: _sums(v)[0], lambda v: v[0] * 1, (v,))


def _branch_in_scan(v: Any) -> Any:
    return scan(lambda c, row: (_branch(c) + row, c * 2), v[0] * 1, v)


def _branch_in_map(v: Any) -> Any:
    return map(_branch, v)


def _three_deep(v: Any) -> Any:
    return torch.cond(v.sum() < 100, lambda v: _branch_in_scan(v)[1], lambda v: v + 1, (v,))


def _sizes(v: Any) -> Any:
    return torch.cond(v.sum() > 0, lambda v: v[:2].clone(), lambda v: v.cos(), (v,))


def _numbers(v: Any) -> Any:
    return torch.cond(v.sum() > 0, lambda v: (v * 1, 2), lambda v: (v * 2, 3), (v,))


def _mismatch(v: Any) -> Any:
    return torch.cond(v.sum() > 0, lambda v: v.sin(), lambda v: v.cos().double(), (v,))


def _trees_differ(v: Any) -> Any:
    return torch.cond(v.sum() > 0, lambda v: (v.sin(),), lambda v: [v.cos()], (v,))


def _carry_differs(v: Any) -> Any:
    return while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, v.sum(0)), (torch.tensor(0), v))


def _writes(v: Any) -> Any:
    y = v * 1
    return torch.cond(v.sum() > -100, lambda y: y.add_(1).clone(), lambda y: y.clone(), (y,)), y


def _writes_closure(v: Any) -> Any:
    y = torch.zeros(3)

    def step(c: Any, row: Any) -> Any:
        y.add_(row.detach())
        return c + row, c * 1

    return scan(step, v[0] * 1, v), y


def _alias(v: Any) -> Any:
    return torch.cond(v.sum() > 0, lambda v: v, lambda v: v.cos(), (v,))


def _dropout(v: Any) -> Any:
    torch.manual_seed(3)
    return map(lambda row: torch.nn.functional.dropout(row, 0.5), v)


def _raises(v: Any) -> Any:
    return torch.cond(v.sum() > 0, lambda v: v @ v, lambda v: v.cos(), (v,))


def _no_tensor(v: Any) -> Any:
    return torch.cond(v.sum() > 0, lambda v, n: v * n, lambda v, n: v + n, (v, "text"))


def _wrong_keyword(v: Any) -> Any:
    return torch.cond(v.sum() > 0, true_fn=lambda v: v, false_fn=lambda v: v + 1, operand=(v,))


def _region(v: Any) -> Any:
    double = mark_compile_region(lambda v: v.sin() * 2)
    return double(double(v))


def _region_in_branch(v: Any) -> Any:
    return torch.cond(v.sum() > 0, mark_compile_region(lambda v: v.sin()), lambda v: v.cos(), (v,))


def _checkpoint(v: Any) -> Any:
    return checkpoint(_branch, v, use_reentrant=False)


def _checkpointed_loop(v: Any) -> Any:
    return checkpoint(lambda v: _sums(v)[0], v, use_reentrant=False)


def _wrap(v: Any) -> Any:
    return HOPS.wrap(lambda v: v.sin() + W, v)


def _wrap_in_map(v: Any) -> Any:
    return map(lambda row: HOPS.wrap(lambda r: r * 2, row), v)


def _grad_inside(v: Any) -> Any:
    return torch.cond(
        v.sum() < 100, lambda v: torch.func.grad(lambda v: (v * v).sum())(v), lambda v: v * 1, (v,)
    )


def _vmap_inside(v: Any) -> Any:
    return scan(lambda c, row: (torch.vmap(lambda a, b: a * b)(c, row), c + 1), v[0] * 1, v)


def _flex(v: Any) -> Any:
    q = v.reshape(1, 1, 4, 3)
    return flex_attention(q, q, q + 1, score_mod=lambda s, b, h, i, j: s + i - j)


def _graph_called(v: Any) -> Any:
    yes, no = (make_fx(f)(v) for f in (torch.sin, torch.cos))
    return torch.cond(v.sum() > 0, yes, no, (v,))


def _operator(v: Any) -> Any:
    return HOPS.cond(v.sum() > 0, lambda v: (v.sin(),), lambda v: (v.cos(),), (v,))


def _map_operator(v: Any) -> Any:
    return HOPS.map_impl(lambda row: (row.sin(),), (v,), ())


def _scan_operator(v: Any) -> Any:
    return HOPS.scan(lambda c, row: [c + row, c * 2], [v[0] * 1], [v], ())


def _strict(v: Any) -> Any:
    return HOPS.strict_mode(lambda v: v.sin() + 1, (v,))


def _hints(v: Any) -> Any:
    return HOPS.hints_wrapper(lambda v: v.sin() + 1, (v,), {}, {"hint": True})


def _out_dtype(v: Any) -> Any:
    a = (v * 10).to(torch.int8)
    return HOPS.out_dtype(torch.ops.aten.mm.default, torch.int32, a, a.t())


def _foreach(v: Any) -> Any:
    from torch._higher_order_ops.foreach_map import foreach_map

    return foreach_map(torch.add, [v, v + 1], [v, v * 2])


class _Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.yes, self.no = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

    def forward(self, v: Any) -> Any:
        return torch.cond(v.sum() > 0, self.yes, self.no, (v,))


SUBJECTS: dict[str, Function] = {
    name[1:]: value
    for name, value in list(globals().items())
    if name.startswith("_") and getattr(value, "__module__", "") == __name__ and not isinstance(value, type)
}
SUBJECTS["layer"] = _Layer()


# --- forms: (subject, tensor) -> what is compared -------------------------------------------------


class _Root(torch.nn.Module):
    def __init__(self, fn: Function) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, v: Any) -> Any:
        return self.fn(v)


def _traced(fn: Function, v: Any, **options: Any) -> Any:
    graph = make_fx(fn, **options)(v)
    return graph.print_readable(print_output=False), graph(v)


def _exported(fn: Function, v: Any, *, strict: bool, dynamic: bool = False) -> Any:
    shapes = ({0: torch.export.Dim.AUTO},) if dynamic else None
    program = torch.export.export(_Root(fn), (v,), strict=strict, dynamic_shapes=shapes)
    return program.graph_module.print_readable(print_output=False), program.module()(v)


def _total(result: Any) -> Any:
    return sum(t.sum() for t in pytree.tree_leaves(result) if torch.is_tensor(t) and t.is_floating_point())


def _gradient(fn: Function, v: Any) -> Any:
    v = v.clone().requires_grad_()
    return torch.autograd.grad(_total(fn(v)), v)


def _aot(fn: Function, v: Any) -> Any:
    graphs: list[str] = []

    @make_boxed_compiler
    def record(graph: Any, _inputs: Any) -> Any:
        graphs.append(graph.print_readable(print_output=False))
        return graph

    v = v.clone().requires_grad_()
    result = aot_function(fn, fw_compiler=record, bw_compiler=record)(v)
    return graphs, result, torch.autograd.grad(_total(result), v)


class _Seen(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def _under_a_mode(fn: Function, v: Any) -> Any:
    with _Seen() as mode:
        result = fn(v)
    return mode.names, result


def _fake(fn: Function, v: Any) -> Any:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        result = fn(mode.from_tensor(v))
    return [(str(t.dtype), list(t.shape)) for t in pytree.tree_leaves(result) if torch.is_tensor(t)]


def _dynamo_export(fn: Function, v: Any) -> Any:
    graph = torch._dynamo.export(fn)(v)[0]
    return graph.print_readable(print_output=False), graph(v)


FORMS: dict[str, Callable[[Function, Any], Any]] = {
    "eager": lambda fn, v: (fn(v), fn(v - 1)),
    "real": lambda fn, v: _traced(fn, v),
    "fake": lambda fn, v: _traced(fn, v, tracing_mode="fake", _allow_non_fake_inputs=True),
    "symbolic": lambda fn, v: _traced(fn, v, tracing_mode="symbolic", _allow_non_fake_inputs=True),
    "pre_dispatch": lambda fn, v: _traced(fn, v, pre_dispatch=True),
    "functionalize": lambda fn, v: torch.func.functionalize(fn)(v),
    "functionalized_graph": lambda fn, v: _traced(
        torch.func.functionalize(fn), v, tracing_mode="fake", _allow_non_fake_inputs=True
    ),
    "gradient": _gradient,
    "func_grad": lambda fn, v: torch.func.grad(lambda v: _total(fn(v)))(v),
    "vmap": lambda fn, v: torch.vmap(fn)(torch.stack([v, v - 1])),
    "jvp": lambda fn, v: torch.func.jvp(fn, (v,), (v * 2,)),
    "traced_grad": lambda fn, v: _traced(torch.func.grad(lambda v: _total(fn(v))), v),
    "vmap_of_grad": lambda fn, v: torch.vmap(torch.func.grad(lambda v: _total(fn(v))))(torch.stack([v, -v])),
    "export": lambda fn, v: _exported(fn, v, strict=False),
    "export_strict": lambda fn, v: _exported(fn, v, strict=True),
    "export_dynamic": lambda fn, v: _exported(fn, v, strict=False, dynamic=True),
    "dynamo_export": _dynamo_export,
    "aot": _aot,
    "dispatch_mode": _under_a_mode,
    "fake_mode": _fake,
}
PROGRAMS = {f"{subject}.{form}": (fn, run) for subject, fn in SUBJECTS.items() for form, run in FORMS.items()}
_ADDRESSES = re.compile(r"0x[0-9a-f]+")


def outcome(fn: Function, run: Callable[[Function, Any], Any]) -> str:
    """The text of the result with all digits, or of the exception."""
    torch.manual_seed(0)
    try:
        found = repr(pytree.tree_map_only(torch.Tensor, _facts, run(fn, X.clone())))
    except Exception as error:
        found = f"{type(error).__module__}.{type(error).__name__}: {error}"
    return _ADDRESSES.sub("0x", found)


def _facts(t: Any) -> Any:
    return str(t.dtype), tuple(t.shape), t.stride(), t.requires_grad, t.tolist()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    chosen = [name for name in PROGRAMS if re.search(sys.argv[1], name)]
    for name in chosen[:: int(sys.argv[2])]:
        print(json.dumps([name, outcome(*PROGRAMS[name])]), flush=True)
        torch._dynamo.reset()
