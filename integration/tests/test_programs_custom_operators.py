"""Operators of the program's own run as often as in eager and in its order, whether somebody uses what they give or not."""

import torch
from beside_eager import Programs, attempt
from torch.library import Library, custom_op

program = Programs()
ran = []


def scaling(name, factor):
    """An operator that multiplies by ``factor``, and says that it has run."""

    @custom_op(f"fxstack_custom::{name}", mutates_args=())
    def operator(x: torch.Tensor) -> torch.Tensor:
        ran.append(name)
        return x * factor

    operator.register_fake(torch.empty_like)
    operator.register_autograd(lambda ctx, grad: grad * factor)
    return operator


double, gather = scaling("double", 2), scaling("gather", 3)


@custom_op("fxstack_custom::note", mutates_args=())
def note(x: torch.Tensor) -> None:
    ran.append("note")


@note.register_fake
def _(x):
    return None


@custom_op("fxstack_custom::write", mutates_args={"out"})
def write(x: torch.Tensor, out: torch.Tensor) -> None:
    ran.append("write")
    out.copy_(x)


@custom_op("fxstack_custom::update", mutates_args={"outs", "scaled"})
def update(x: torch.Tensor, outs: list[torch.Tensor], scaled: torch.Tensor | None = None) -> torch.Tensor:
    ran.append("update")
    for out in outs:
        out.add_(x)
    if scaled is not None:
        scaled.mul_(2)
    return x + 1


@update.register_fake
def _(x, outs, scaled=None):
    return torch.empty_like(x)


_LIBRARY = Library("fxstack_custom", "FRAGMENT")
_LIBRARY.define("old(Tensor x) -> Tensor")
_LIBRARY.impl("old", lambda x: (ran.append("old"), x + 1)[1], "CPU")
_LIBRARY.impl("old", lambda x: torch.empty_like(x), "Meta")


def calls(c, fn, *inputs, train=False):
    """What two calls give, with gradients where wanted, and which operators ran, up to each point."""
    ran.clear()
    compiled, seen = c(fn), []
    for _ in range(2):
        seen.append(compiled(*inputs))
        seen.append(list(ran))
        if train:
            seen[-2].backward()
            seen.append(list(ran))
    return seen, inputs


def leaf():
    return (torch.arange(4.0) + 1).requires_grad_()


@program(graphs=1, breaks=0)
def results_that_nobody_uses(c):
    def f(x):
        double(x)
        torch.ops.fxstack_custom.old(x)
        write(x, torch.empty(4))
        return x + 1

    return calls(c, f, torch.ones(4))


@program(graphs=1, breaks=0)
def results_that_nobody_uses_in_training(c):
    def f(x):
        double(x)
        write(x.detach(), torch.empty(4))
        return (x + 1).sum()

    return calls(c, f, leaf(), train=True)


# torch 2.11 fails to trace a custom operator that changes an argument given by name.
@program(graphs=1 if torch.__version__ >= "2.13" else None, breaks=0)
def the_order_of_calls(c):
    def f(x):
        out, plain = torch.empty(4), x.detach()
        double(plain)
        write(plain, out)
        used = double(x + 1)
        note(plain)
        update(plain, [out])
        double(out)
        return (out * used).sum()

    return calls(c, f, leaf(), train=True)


@program(graphs=1, breaks=0)
def one_that_is_named_like_a_cheap_operator(c):
    return calls(c, lambda x: (gather(x) * x.sin()).exp().sum(), leaf(), train=True)


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(double(x))
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (doubled,) = ctx.saved_tensors
        return gather(grad * doubled)


@program(graphs=1, breaks=0)
def a_result_that_only_the_backward_uses(c):
    return calls(c, lambda x: Squared.apply(x).sum(), leaf(), train=True)


@program(graphs=1, breaks=0)
def inside_of_a_checkpoint(c):
    def region(x):
        return double(x.sin()).exp()

    def f(x):
        return torch.utils.checkpoint.checkpoint(region, x, use_reentrant=False).sum()

    return calls(c, f, leaf(), train=True)


@program(breaks=0)
def writes_to_views_lists_and_optional_tensors(c):
    def f(x, out):
        scaled = x * 3
        write(x, out[5:])
        given = update(x, [out[:4], out[4:8]], scaled)
        return given, out + 1, scaled, update(x, [out[:4]])

    return calls(c, f, torch.ones(4), torch.zeros(9))


@program(dynamic=True, breaks=0)
def writes_under_symbolic_sizes(c):
    def f(x, out):
        made = torch.empty_like(x)
        write(x, made)
        update(x, [out[: x.shape[0]]])
        return made

    return [calls(c, f, torch.ones(n), torch.zeros(8)) for n in (3, 4, 6)]


_LIBRARY.define("first(Tensor x) -> Tensor")
_LIBRARY.define("first.scaled(Tensor x, float k) -> Tensor")
_LIBRARY.impl("first", torch.neg, "CompositeImplicitAutograd")
_LIBRARY.impl("first.scaled", torch.mul, "CompositeImplicitAutograd")


@program(fullgraph=True, graphs=1)
def overloads_that_are_first_used_in_compiled_code(c):
    """Eager runs afterwards: it would look up the overloads, which are kept."""
    names = torch.ops.fxstack_custom
    for name in ("default", "scaled"):
        vars(names.first).pop(name, None)
    return c(lambda x: names.first.default(x) + names.first.scaled(x, 2.0))(torch.ones(3))


@program(breaks=0)
def names_of_operators_that_do_not_exist(c):
    def f(x, names, name):
        return x + 1, getattr(names, name)(x)

    wrong = (
        (torch.ops.aten, "nothing_at_all"),
        (torch.ops.aten.add, "nothing"),
        (torch.ops.aten.add, "__nothing__"),
    )
    return [attempt(c(f), torch.ones(3), *names) for names in wrong]


def _out(name, *args, **outs):
    def call(x, y, out):
        *path, last = name.split(".")
        operator = torch.ops.aten
        for step in (*path, last):
            operator = getattr(operator, step)
        given = {key: make(x, y, out) for key, make in outs.items()}
        result = operator(*(arg(x, y) if callable(arg) else arg for arg in args), **given)
        return result, given, out * 2, x + 0

    return call


X, Y, OUT = (lambda x, y: x), (lambda x, y: y), {"out": lambda x, y, out: out}
OUTS = {
    "packet": _out("add", X, Y, **OUT),
    "out": _out("add.out", X, Y, **OUT),
    "view": _out("mul.out", X, Y, out=lambda x, y, out: out.view(6).view(2, 3)),
    "itself": _out("sub.out", X, Y, out=lambda x, y, out: x),
    "rows": _out("sum.IntList_out", X, [0], out=lambda x, y, out: out[1]),
    "made": _out("mm.out", X, lambda x, y: y.t(), out=lambda x, y, out: torch.zeros(2, 2)),
    "resized": _out("add.out", X, Y, out=lambda x, y, out: torch.zeros(0)),
    "two": _out(
        "sort.values",
        X,
        1,
        True,
        values=lambda x, y, out: out,
        indices=lambda x, y, out: torch.zeros(2, 3, dtype=torch.int64),
    ),
    "other dtype": _out("add.out", X, Y, out=lambda x, y, out: torch.zeros(2, 3, dtype=torch.int64)),
    "overlap": _out(
        "add.out", lambda x, y: x[1:], lambda x, y: y[1:], out=lambda x, y, out: x.view(-1)[1:4][None]
    ),
}


@program(breaks=0)
def overloads_that_write_to_out(c):
    results = []
    for call in OUTS.values():
        x, y, out = torch.arange(6.0).view(2, 3), torch.ones(2, 3), torch.zeros(2, 3)
        results += [attempt(c(call), x, y, out), x, y, out]
    return results


@program(fullgraph=True)
def products_of_scaled_matrices(c):
    functional = torch.nn.functional
    if not hasattr(functional, "scaled_mm"):  # before torch 2.10
        return None
    kind, plain = functional.ScalingType.TensorWise, functional.SwizzleType.NO_SWIZZLE
    a, scale = torch.eye(16).to(torch.float8_e4m3fn), torch.tensor(2.0)
    calls = (
        lambda a, s: functional.scaled_mm(a, a.t(), s, kind, s, kind, output_dtype=torch.bfloat16),
        lambda a, s: functional.scaled_mm(
            a, a.t(), s, [kind], s, [kind], plain, plain, output_dtype=torch.float32
        ),
        lambda a, s: (kind.value + 1, kind.name, kind == functional.ScalingType.RowWise, a.float() * s),
    )
    return [attempt(c(call), a, scale) for call in calls]


test_programs = program.tests()
