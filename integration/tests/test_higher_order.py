"""Operators with functions as arguments, compiled by all stages: results, gradients and side effects of eager."""

import warnings

import pytest
import torch
from torch._higher_order_ops import InvokeQuant, invoke_quant_packed
from torch._higher_order_ops.foreach_map import foreach_map
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.out_dtype import out_dtype
from torch._higher_order_ops.strict_mode import strict_mode
from torch._ops import HigherOrderOperator

import fxstack

OPERATORS = torch.ops.higher_order
QUANT = InvokeQuant()
W = torch.randn(3, 3)
GRAPH = torch.fx.symbolic_trace(lambda a, b: (a.sin() + b,))


class Tripled(HigherOrderOperator):
    """An operator of a program, which calls its function on its operands."""

    def __init__(self):
        super().__init__("fxstack_test_tripled")

    def __call__(self, f, *args):
        return super().__call__(f, *args)


TRIPLED = Tripled()


def tripled(f, *args):
    return f(*args) * 3


TRIPLED.py_impl(torch._C.DispatchKey.CompositeExplicitAutograd)(tripled)
TRIPLED.fallthrough(torch._C.DispatchKey.AutogradCPU)
torch._higher_order_ops.utils.register_fake(TRIPLED)(tripled)


def plus_w(a, b):
    return (a @ b).sin() + W


def writes_and_appends(x, y):
    seen = []

    def body(a, b):
        a.add_(1)
        seen.append(a * b)
        return a.view(-1), {"b": b.exp()}

    z = x * 2
    flat, rest = OPERATORS.wrap(body, z, y)
    return flat + 1, rest["b"], seen[0], z


def nested(x, y):
    def branch(a, b):
        return OPERATORS.wrap(torch.mul, a.sin(), b)

    return OPERATORS.wrap(lambda a, b: torch.cond(a.sum() > 0, branch, torch.sub, (a, b)), x, y)


PROGRAMS = {
    "wrap": lambda x, y: OPERATORS.wrap(plus_w, x, y),
    "writes and appends": writes_and_appends,
    "nested": nested,
    "grad mode": lambda x, y: OPERATORS.wrap_with_set_grad_enabled(False, plus_w, x, y) * x,
    "autocast": lambda x, y: OPERATORS.wrap_with_autocast("cpu", torch.bfloat16, True, None, torch.mm, x, y),
    "hints": lambda x, y: hints_wrapper(lambda a, b: a.sin() * b, (x, y), {}, hints={"k": 1}) + 1,
    "strict": lambda x, y: strict_mode(lambda a, b: a.sin() * b, (x, y)) + 1,
    "foreach": lambda x, y: foreach_map(lambda a, b: (a * b).sin(), [x, y], [y, 2]),
    "out_dtype": lambda x, y: out_dtype(torch.ops.aten.mm.default, torch.float64, x, y),
    "quant": lambda x, y: QUANT(lambda a, b: (a.sin() * b,), x, y, scheme="nf4"),
    "quant packed": lambda x, y: invoke_quant_packed(lambda a, b: (a.sin() * b,), x, y),
    "const graph": lambda x, y: OPERATORS.run_const_graph(GRAPH, (x, y)),
    "of the program": lambda x, y: TRIPLED(lambda a, b: a.sin() * b, x, y) + 1,
}
PLAINLY = {
    # Eager's foreach_map has no gradient for functions that are no graphs.
    "foreach": lambda x, y: [(x * y).sin(), (y * 2).sin()]
}


def observed(fn, *, gradients):
    """The results of ``fn``, whether each requires a gradient, and the gradients of the inputs."""
    torch.manual_seed(0)
    inputs = [torch.randn(3, 3).requires_grad_(gradients) for _ in range(2)]
    results = torch.utils._pytree.tree_leaves(fn(*inputs))
    needing = [x.requires_grad for x in results]
    total = sum(x.float().sum() for x in results if x.requires_grad)
    grads = torch.autograd.grad(total, inputs, allow_unused=True) if any(needing) else None
    return [x.detach() for x in results], needing, grads


@pytest.mark.parametrize(
    "options", [{"backend": "eager"}, {}, {"dynamic": True}], ids=["eager", "default", "dynamic"]
)
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_operator_does_in_one_graph_as_in_eager(name, gradients, options):
    fn = PROGRAMS[name]
    compiled = fxstack.compile(fn, fullgraph=True, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = observed(compiled, gradients=gradients)
    torch.testing.assert_close(found, observed(PLAINLY.get(name, fn), gradients=gradients))
    log = fxstack.compile_log(compiled)
    assert (log.graph_count, len(log.breaks)) == (1, 0)


@pytest.mark.parametrize("name", ["hints", "strict", "out_dtype"])
def test_a_backward_through_an_operator_without_a_gradient_raises(name):
    compiled = fxstack.compile(PROGRAMS[name], fullgraph=True)
    x, y = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3)
    with pytest.raises(RuntimeError, match="Autograd not implemented"):
        compiled(x, y).sum().backward()


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_printed_text_is_printed_once_in_order(backend, gradients, capsys):
    printed = torch._higher_order_ops.print

    def fn(x):
        printed("first {}", x.sum())
        y = x * 2
        printed("second {s}", s=y.sum())
        return y.sin()

    x = torch.ones(2, requires_grad=gradients)
    result = fxstack.compile(fn, backend=backend, fullgraph=True)(x)
    if gradients:
        result.sum().backward()
    lines = capsys.readouterr().out.splitlines()
    assert [(line.split()[0], "2." in line or "4." in line) for line in lines] == [
        ("first", True),
        ("second", True),
    ]


leaf_function = getattr(torch.compiler, "leaf_function", None) or getattr(
    torch._dynamo.decorators, "leaf_function", None
)


@pytest.mark.skipif(leaf_function is None, reason="this torch has no leaf functions")
class TestLeafFunctions:
    def leaf(self, fn, fake, **options):
        marked = leaf_function(**options)(fn) if options else leaf_function(fn)
        marked.register_fake(fake)
        return marked

    def check(self, fn, *, gradients=False, **options):
        compiled = fxstack.compile(fn, fullgraph=True, **options)
        torch.testing.assert_close(observed(compiled, gradients=gradients), observed(fn, gradients=gradients))

    @pytest.mark.parametrize("backend", ["eager", "inductor"])
    @pytest.mark.parametrize("gradients", [False, True])
    def test_it_runs_as_it_is(self, gradients, backend):
        seen = []
        leaf = self.leaf(
            lambda x, y: (seen.append(x.sum().item()), {"a": x.sin() * y})[1],
            lambda x, y: {"a": torch.empty_like(x)},
        )
        self.check(lambda x, y: leaf(x + 1, y=y)["a"] * 2, gradients=gradients, backend=backend)
        assert len(seen) == 2

    @pytest.mark.parametrize("backend", ["eager", "inductor"])
    def test_it_may_write_to_declared_arguments(self, backend):
        def fn(x, buffer):
            buffer.add_(1)
            return (x + buffer,)

        leaf = self.leaf(fn, lambda x, buffer: (torch.empty_like(x),), mutates_args={"buffer"})

        def program(x, y):
            buffer = y.clone()
            return leaf(x, buffer)[0], buffer * 2

        self.check(program, backend=backend)

    @pytest.mark.parametrize("backend", ["eager", "inductor"])
    @pytest.mark.parametrize("gradients", [False, True])
    def test_it_takes_modules(self, gradients, backend):
        linear = torch.nn.Linear(3, 3)
        leaf = self.leaf(lambda m, x: (m(x),), lambda m, x: (x.new_empty(len(x), m.weight.shape[0]),))
        with torch.set_grad_enabled(gradients):
            self.check(lambda x, y: leaf(linear, x)[0] * y, gradients=gradients, backend=backend)

    def test_it_needs_a_fake_implementation(self):
        leaf = leaf_function(lambda x: (x,))
        with pytest.raises(ValueError, match="requires a fake implementation"):
            fxstack.compile(leaf)(torch.ones(2))
