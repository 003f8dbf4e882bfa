"""Programs with higher-order operators, made of parts, beside the same programs in plain Python.

A program is a function of ``ops``, which has the operators of torch or the same in plain Python, and of tensors. A case is
an operator, how its operands are nested, what its functions do, and how it is called (gradients, sizes, the front end).
"""

from __future__ import annotations

import itertools
import warnings
from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch._higher_order_ops import associative_scan, map, scan, while_loop
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

import fxstack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Pair = namedtuple("Pair", "left right")  # noqa: PYI024


@dataclass
class Box:
    """A dataclass that pytree knows."""

    held: Any
    also: Any


pytree.register_dataclass(Box)


class Double(torch.autograd.Function):
    """A function with a gradient of its own, which asserts something of its argument."""

    @staticmethod
    def forward(ctx, x, bound):
        torch._assert_async(x.abs().sum() < bound)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2, None


def _stacked(results, dim=0):
    leaves = [pytree.tree_leaves(result) for result in results]
    spec = pytree.tree_structure(results[0])
    return pytree.tree_unflatten([torch.stack(column, dim) for column in zip(*leaves, strict=True)], spec)


def _plain_cond(pred, yes, no, operands=()):
    return yes(*operands) if pred else no(*operands)


def _plain_while(cond, body, carry):
    while cond(*carry):
        carry = body(*carry)
    return carry


def _plain_map(fn, xs, *more):
    count = pytree.tree_leaves(xs)[0].shape[0]
    return _stacked([fn(pytree.tree_map(lambda x, i=i: x[i], xs), *more) for i in range(count)])


def _plain_scan(fn, carry, xs, *, dim=0, reverse=False):
    count = pytree.tree_leaves(xs)[0].shape[dim]
    outputs = []
    for i in reversed(range(count)) if reverse else range(count):
        carry, out = fn(carry, pytree.tree_map(lambda x, i=i: x.select(dim, i), xs))
        outputs.append(out)
    return carry, _stacked(outputs[::-1] if reverse else outputs, dim)


def _plain_associative(fn, xs, dim, reverse=False, combine_mode="generic"):
    count = pytree.tree_leaves(xs)[0].shape[dim]
    slices = [pytree.tree_map(lambda x, i=i: x.select(dim, i), xs) for i in range(count)]
    made = list(itertools.accumulate(slices[::-1] if reverse else slices, fn))
    return _stacked(made[::-1] if reverse else made, dim)


PLAIN = SimpleNamespace(
    cond=_plain_cond,
    while_loop=_plain_while,
    map=_plain_map,
    scan=_plain_scan,
    associative_scan=_plain_associative,
    checkpoint=lambda fn, *args: fn(*args),
    region=lambda fn, *args: fn(*args),
)
TORCHS = SimpleNamespace(
    cond=torch.cond,
    while_loop=while_loop,
    map=map,
    scan=scan,
    associative_scan=associative_scan,
    checkpoint=lambda fn, *args: checkpoint(fn, *args, use_reentrant=False),
    region=lambda fn, *args: REGION(fn, *args),
)


@torch.compiler.nested_compile_region
def REGION(fn, *args):  # noqa: N802 - a constant function
    return fn(*args)


# --- how operands are nested: a container of two tensors, and the tensors of one ---------------------

NESTS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], tuple[Any, Any]]]] = {
    "tuple": (lambda a, b: (a, b), lambda n: (n[0], n[1])),
    "list": (lambda a, b: [a, b], lambda n: (n[0], n[1])),
    "dict": (lambda a, b: {"a": a, "b": b}, lambda n: (n["a"], n["b"])),
    "deep": (lambda a, b: {"x": [a, (b,)]}, lambda n: (n["x"][0], n["x"][1][0])),
    "named": (Pair, lambda n: (n.left, n.right)),
    "class": (lambda a, b: Box(a, [b]), lambda n: (n.held, n.also[0])),
}

# --- what the functions do: (ops, state, a, b) -> a tensor like a ------------------------------------
# ``a`` is float and of any shape, ``i`` an integer tensor of no dimensions that is 1, 2, ... ; ``state`` has w (3 numbers),
# table (64 rows), k (an int) and model.


def _checked(ops, state, a, i):
    n = i.item()
    torch._check(n < state.most)
    return a * n


def _asserted(ops, state, a, i):
    torch._assert_async(i < state.most)
    return a + 1


def _asserted_in_a_function(ops, state, a, i):
    return Double.apply(a, 1e6 if state.most > 1 else 1e-6)


def _without_gradient(ops, state, a, i):
    with torch.no_grad():
        scale = a.abs().mean() + 1
    return a / scale


def _written_inside(ops, state, a, i):
    b = a.clone()
    b.mul_(0.5).add_(state.w)
    return b


def _nested_cond(ops, state, a, i):
    return ops.cond(a.sum() > 0, lambda a, i: a * 0.5 - i, lambda a, i: (a + state.w).cos(), (a, i))


def _nested_while(ops, state, a, i):
    return ops.while_loop(
        lambda n, a: n < 2 + i, lambda n, a: (n + 1, a * 0.5 + state.w), (torch.tensor(0), a)
    )[1]


def _nested_scan(ops, state, a, i):
    return ops.scan(lambda c, x: (c * 0.5 + x, x * 2), a, state.table[:2])[0]


def _nested_twice(ops, state, a, i):
    return ops.cond(i > 1, lambda a: _nested_while(ops, state, a, i), lambda a: a.sin(), (a,))


BODIES: dict[str, Callable[..., Any]] = {
    "arithmetic": lambda ops, s, a, i: (a * 0.5 + i).sin(),
    "tensor": lambda ops, s, a, i: a * 0.5 + s.w,
    "integer": lambda ops, s, a, i: a * 0.5 + s.k,
    "module": lambda ops, s, a, i: s.model(a).tanh(),
    "item": lambda ops, s, a, i: a * 0.5 + i.item(),
    "index": lambda ops, s, a, i: a * 0.5 + s.table[i.item()],
    "lookup": lambda ops, s, a, i: a * 0.5 + s.table[i],
    "check": _checked,
    "assert": _asserted,
    "function": _asserted_in_a_function,
    "no_grad": _without_gradient,
    "written": _written_inside,
    "cond": _nested_cond,
    "while": _nested_while,
    "scan": _nested_scan,
    "twice": _nested_twice,
    "size": lambda ops, s, a, i: a * a.shape[-1] + a.dim(),
}

# --- operators -----------------------------------------------------------------------------------------


def _cond(ops, state, nest, body, x):
    make, take = nest

    def yes(n):
        a, i = take(n)
        return make(body(ops, state, a, i), i * 1)

    def no(n):
        a, i = take(n)
        return make(a.exp(), i + 7)

    made = make(x * 2, torch.tensor(1) + x.dim() - x.dim())
    one = ops.cond(x.sum() > 0, yes, no, (made,))
    return one, ops.cond(x.sum() < 0, yes, no, (made,))


def _while(ops, state, nest, body, x):
    make, take = nest

    def turn(n):
        a, i = take(n)
        return (make(body(ops, state, a, i), i + 1),)

    return ops.while_loop(lambda n: take(n)[1] < 4, turn, (make(x * 2, torch.tensor(1)),))


def _counted(ops, state, nest, body, x):
    """The count is an int of Python."""

    def turn(n, m, a):
        return n + 1, m, body(ops, state, a, torch.tensor(1)) + n * m

    return ops.while_loop(lambda n, m, a: n < 3, turn, (0, 2, x * 2))


def _map(ops, state, nest, body, x):
    make, take = nest

    def one(n):
        a, i = take(n)
        return make(body(ops, state, a, i), a + 1)

    return ops.map(one, make(x * 2, torch.arange(1, 1 + x.shape[0])))


def _scan(ops, state, nest, body, x):
    make, take = nest

    def step(n, row):
        a, i = take(n)
        return make(body(ops, state, a, i), i + 1), {"out": a + row}

    return ops.scan(step, make(x[0] * 2, torch.tensor(1)), x)


def _scan_back(ops, state, nest, body, x):
    make, take = nest

    def step(n, row):
        a, i = take(n)
        return make(body(ops, state, a, i), i + 1), [a * 1, row + 1]

    return ops.scan(step, make(x[0] * 2, torch.tensor(1)), x, reverse=True)


def _associative(ops, state, nest, body, x):
    make, take = nest

    def combine(left, right):
        (a, b), (c, d) = take(left), take(right)
        return make(a * c, b + d + state.w * 0)

    return ops.associative_scan(combine, make(x * 2, x + 1), 0, combine_mode="generic")


def _checkpoint(ops, state, nest, body, x):
    make, take = nest

    def block(n):
        a, i = take(n)
        return make(body(ops, state, a, i), a + 1)

    return ops.checkpoint(block, make(x * 2, torch.tensor(2)))


def _region(ops, state, nest, body, x):
    make, take = nest

    def block(n):
        a, i = take(n)
        return make(body(ops, state, a, i), a + 1)

    return ops.region(block, make(x * 2, torch.tensor(2)))


OPERATORS: dict[str, Callable[..., Any]] = {
    "cond": _cond,
    "while_loop": _while,
    "counted": _counted,
    "map": _map,
    "scan": _scan,
    "scan_back": _scan_back,
    "associative_scan": _associative,
    "checkpoint": _checkpoint,
    "region": _region,
}
FRONTS: dict[str, Callable[..., Any]] = {
    "fxstack": lambda fn, dynamic: fxstack.compile(fn, dynamic=dynamic),
    "torch": lambda fn, dynamic: torch.compile(fn, backend="fxstack", dynamic=dynamic),
}
FAILING = ("check", "assert", "function")
"""Bodies that raise where ``state.most`` is small."""


@dataclass(frozen=True, slots=True)
class Case:
    operator: str
    nest: str = "tuple"
    body: str = "arithmetic"
    gradients: bool = False
    dynamic: bool | None = None
    front: str = "fxstack"
    fails: bool = False

    def __str__(self) -> str:
        flags = [name for name in ("gradients", "fails") if getattr(self, name)]
        dynamic = [] if self.dynamic is None else [f"dynamic={self.dynamic}"]
        return " ".join([self.front, self.operator, self.nest, self.body, *flags, *dynamic])


def cases() -> Iterator[Case]:
    """Each operator with each nest and each body, in each way of calling; not their product."""
    for operator, front in itertools.product(OPERATORS, FRONTS):
        for nest in NESTS if operator != "counted" else ("tuple",):
            for gradients in (False, True):
                yield Case(operator, nest, gradients=gradients, front=front)
        for body in BODIES if operator != "associative_scan" else ():
            for gradients, dynamic in ((False, None), (True, None), (False, True)):
                yield Case(operator, "tuple", body, gradients, dynamic, front)
            if body in FAILING:
                yield Case(operator, "tuple", body, front=front, fails=True)


def run(case: Case) -> str | None:
    """What differs between the compiled program and plain Python; None if nothing does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        state = SimpleNamespace(
            w=torch.randn(3), table=torch.randn(64, 3), k=3, model=nn.Linear(3, 3), most=50
        )
        if case.fails:
            state.most = 1
        operator, nest, body = OPERATORS[case.operator], NESTS[case.nest], BODIES[case.body]
        xs = [torch.rand(4, 3) + 0.1, -torch.rand(4, 3) - 0.1]
        if case.dynamic:
            xs.append(torch.rand(5, 3))

        def fn(x):
            return operator(TORCHS, state, nest, body, x)

        def plain(x):
            return operator(PLAIN, state, nest, body, x)

        compiled = FRONTS[case.front](fn, case.dynamic)
        for x in xs:
            expected, found = (observed(f, state, x, case.gradients) for f in (plain, compiled))
            text = difference(found, expected)
            if text is not None and isinstance(found, Raised):  # torch's operators may refuse it
                expected = observed(
                    lambda x: operator(TORCHS, state, nest, body, x), state, x, case.gradients
                )
                text = difference(found, expected)
            if text is not None:
                return text
    return None


def observed(fn: Callable[[Any], Any], state: Any, x: torch.Tensor, gradients: bool) -> Any:
    """The result and its gradients, or what was raised."""
    given = x.clone().requires_grad_(gradients)
    leaves = [given, state.w.requires_grad_(gradients), *state.model.parameters()]
    for leaf in leaves[2:]:
        leaf.requires_grad_(gradients)
    try:
        result = fn(given)
    except Exception as error:
        return Raised(error)
    outputs = [y for y in pytree.tree_leaves(result) if isinstance(y, torch.Tensor) and y.requires_grad]
    if not outputs:
        return result, None
    total = sum(y.sum() for y in outputs)
    try:
        return result, torch.autograd.grad(total, leaves, allow_unused=True)
    except Exception as error:
        return Raised(error)


@dataclass(frozen=True, slots=True)
class Raised:
    error: Exception


def difference(found: Any, expected: Any) -> str | None:
    if isinstance(found, Raised) or isinstance(expected, Raised):
        if not (isinstance(found, Raised) and isinstance(expected, Raised)):
            return f"{found} is not {expected}"[:600]
        same = type(found.error) is type(expected.error)
        return None if same else f"{found.error!r} is not {expected.error!r}"[:600]
    return values_difference(found, expected)


def values_difference(found: Any, expected: Any) -> str | None:
    """Return the first difference of two containers of tensors: in structure or in a leaf. None if there is none."""
    (mine, spec), (theirs, wanted) = pytree.tree_flatten(found), pytree.tree_flatten(expected)
    if spec != wanted:
        return f"structure {spec} is not {wanted}"
    for place, (x, y) in enumerate(zip(mine, theirs, strict=True)):
        text = leaf_difference(x, y)
        if text is not None:
            return f"leaf {place}: {text}"
    return None


def leaf_difference(x: Any, y: Any) -> str | None:
    if not isinstance(y, torch.Tensor):
        return None if type(x) is type(y) and x == y else f"{x!r} is not {y!r}"
    if not isinstance(x, torch.Tensor):
        return f"{x!r} is no tensor"
    facts = [(type(t), t.dtype, tuple(t.shape)) for t in (x, y)]
    if facts[0] != facts[1]:
        return f"{facts[0]} is not {facts[1]}"
    try:
        torch.testing.assert_close(x.detach(), y.detach(), equal_nan=True)
    except AssertionError as error:
        return str(error).replace("\n", " ")[:200]
    return None
