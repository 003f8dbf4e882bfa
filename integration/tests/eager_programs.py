"""Eager programs that call no compiler, though torch compiles inside of some; prints the outcome of each in a line."""

import sys
import tempfile
import warnings
from pathlib import Path

import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.invoke_subgraph import mark_compile_region
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.hop_db import hop_db

X = torch.arange(4.0)
PROGRAMS = {}


def program(fn):
    PROGRAMS[fn.__name__] = fn
    return fn


def branch(v):
    return torch.cond(v.sum() > 0, lambda v: v.sin(), lambda v: v.cos(), (v,))


def doubled(v):
    return while_loop(lambda i, _: i.sum() < 3, lambda i, v: (i + 1, v * 2), (torch.tensor(0), v))


class Branch(torch.nn.Module):
    def forward(self, v):
        return branch(v)


class Sine(torch.nn.Module):
    def forward(self, v):
        return v.sin()


@program
def carried_integer():
    return while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, v * 2), (0, X))


@program
def loop():
    return doubled(X)


@program
def nested_loops():
    def body(i, v):
        inner = while_loop(lambda j, _: j < 2, lambda j, w: (j + 1, w + 1), (torch.tensor(0), v))
        return i + 1, inner[1]

    return while_loop(lambda i, _: i < 3, body, (torch.tensor(0), X))


@program
def branches():
    return branch(X)


@program
def branches_of_other_sizes():
    return torch.cond(X.sum() > 0, lambda v: v[:2].clone(), lambda v: v.cos(), (X,))


@program
def branch_that_writes():
    y = X.clone()
    return torch.cond(X.sum() > 0, lambda v: v.add_(1).clone(), lambda v: v.clone(), (y,)), y


@program
def branch_in_vmap():
    return torch.vmap(branch)(X[:, None])


@program
def gradient_of_a_branch():
    y = X.clone().requires_grad_()
    branch(y).sum().backward()
    return y.grad


@program
def gradient_of_map():
    y = X[:, None].clone().requires_grad_()
    map_over(lambda v: v * v, y).sum().backward()
    return y.grad


@program
def scans():
    added = associative_scan(lambda a, b: a + b, X, 0, combine_mode="generic")
    return scan(lambda c, v: (c + v, c * v), torch.zeros(()), X), added


@program
def functionalized():
    return torch.func.functionalize(branch)(X), torch.func.functionalize(doubled)(X)


@program
def traced_by_make_fx():
    def operators(fn, mode):
        return str(make_fx(fn, tracing_mode=mode)(X).code).count("higher_order")

    functions = (branch, doubled, lambda v: map_over(lambda w: w.sin(), v[:, None]))
    return [operators(fn, mode) for fn in functions for mode in ("real", "fake", "symbolic")]


@program
def exported_by_dynamo():
    export = torch._dynamo.export
    return export(lambda v: v.sin() + 1)(X)[0](X), export(branch, aten_graph=True)(X)[0](X)


@program
def exported():
    plain = torch.export.export(Branch(), (X,)).module()(X)
    return plain, torch.export.export(Sine(), (X,), strict=True).module()(X)


@program
def compiled_alone_and_saved():
    compiled = torch._inductor.standalone_compile(make_fx(Sine(), tracing_mode="fake")(X), [X])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "artifact")
        compiled.save(path=str(file), format="binary")
        return compiled(X), file.exists()


@program
def region():
    return mark_compile_region(lambda v: v.sin())(X)


FORMS = {
    "branch": branch,
    "loop": lambda v: doubled(v)[1],
    "counted_loop": lambda v: while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, v * 2), (0, v))[1],
    "other_sizes": lambda v: torch.cond(v.sum() > 0, lambda v: v[:2].clone(), lambda v: v.cos(), (v,)),
    "writing_branch": lambda v: torch.cond(v.sum() > 0, lambda v: v.add_(1).clone(), torch.clone, (v * 1,)),
    "batched_branch": lambda v: torch.vmap(branch)(v[:, None]),
    "mapped": lambda v: map_over(lambda w: w.sin(), v[:, None]),
}


def traced(fn, mode):
    return lambda v: (graph := make_fx(fn, tracing_mode=mode)(v)).code.count("higher_order") + graph(v)


def gradient(fn):
    def run(v):
        v = v.clone().requires_grad_()
        return torch.autograd.grad(fn(v).sum(), v)

    return run


UNDER = {
    "functionalize": torch.func.functionalize,
    "real": lambda fn: traced(fn, "real"),
    "symbolic": lambda fn: traced(fn, "symbolic"),
    "nested": lambda fn: traced(lambda v: make_fx(fn, tracing_mode="fake")(v)(v), "real"),
    "functionalized_graph": lambda fn: traced(torch.func.functionalize(fn), "fake"),
    "gradient": gradient,
    "func_gradient": lambda fn: torch.func.grad(lambda v: fn(v).sum()),
    "exported_by_dynamo": lambda fn: lambda v: torch._dynamo.export(fn, aten_graph=True)(v)[0](v),
}
PROGRAMS |= {
    f"{form}.{under}": lambda fn=FORMS[form], under=UNDER[under]: under(fn)(X.clone())
    for form in FORMS
    for under in UNDER
}


def sampled(op):
    def run():
        torch.manual_seed(0)
        return [
            op.op(sample.input, *sample.args, **sample.kwargs)
            for sample in op.sample_inputs_func(op, "cpu", torch.float32, requires_grad=False)
        ]

    return run


PROGRAMS |= {f"{op.name}.{op.variant_test_name}": sampled(op) for op in hop_db}


def outcome(fn):
    try:
        return str(fn())
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for name in sys.argv[1:] or PROGRAMS:
        print(name, " ".join(outcome(PROGRAMS[name]).split()))
