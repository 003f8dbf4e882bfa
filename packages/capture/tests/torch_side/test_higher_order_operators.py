"""Operators with functions as arguments: the nodes of their calls, and the calls that have none."""

import itertools
import re

import pytest
import torch
from torch._higher_order_ops.foreach_map import foreach_map
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.out_dtype import out_dtype
from torch._higher_order_ops.strict_mode import strict_mode
from torch._ops import HigherOrderOperator

import fxstack_capture as fx

OPERATORS = torch.ops.higher_order
X, Y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0])
W = torch.tensor([7.0, 11.0])
NAMES = itertools.count()


def captured(fn, *args):
    """The graph of ``fn``, which gives what ``fn`` gives."""
    graph = fx.capture(fn, *args)
    module = graph.graph_module
    if len(graph.example_inputs) == len(args):
        torch.testing.assert_close(module(*args), flat(fn(*args)))
    return module


def flat(result):
    return tuple(leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor))


def call_of(module, operator):
    """The node of an operator: the name of its function's graph, and the names of its operands."""
    (node,) = module.graph.find_nodes(op="call_function", target=operator)
    (body,) = (arg for arg in node.all_input_nodes if arg.op == "get_attr")
    assert isinstance(module.get_submodule(body.target), torch.fx.GraphModule)
    return body.target, [arg.name for arg in node.all_input_nodes if arg.op != "get_attr"], node


@pytest.mark.parametrize(
    ("fn", "operator", "attribute"),
    [
        (lambda x, y: OPERATORS.wrap(lambda a, b: a.sin() * b, x, y), "wrap", "wrap_body_0"),
        (lambda x, y: OPERATORS.wrap(lambda a, *, b: a.sin() * b, x, b=y), "wrap", "wrap_body_0"),
        (lambda x, y: OPERATORS.wrap(lambda *, a, b: a.sin() * b, a=x, b=y), "wrap", "wrap_body_0"),
        (lambda x, y: foreach_map(torch.mul, [x, y], [y, 2]), "foreach_map", "subgraph_0"),
        (
            lambda x, y: hints_wrapper(lambda a, b: a * b, (x, y), {}, hints={"k": 1}),
            "hints_wrapper",
            "hints_wrapper_body_0",
        ),
        (lambda x, y: OPERATORS.strict_mode(lambda a, b: a * b, (x, y)), "strict_mode", "strict_mode_body_0"),
        (
            lambda x, y: OPERATORS.wrap_with_set_grad_enabled(False, lambda a, b: a * b, x, y),
            "wrap_with_set_grad_enabled",
            "wrap_body_0",
        ),
        (
            lambda x, y: OPERATORS.wrap_with_autocast("cpu", torch.bfloat16, True, None, torch.mul, x, y),
            "wrap_with_autocast",
            "wrap_body_0",
        ),
    ],
)
def test_a_call_is_a_node_of_the_operator(fn, operator, attribute):
    module = captured(fn, X, Y)
    name, operands, _ = call_of(module, getattr(OPERATORS, operator))
    assert (name, operands) == (attribute, ["l_x", "l_y"])


def test_what_a_function_closes_over_is_an_operand():
    module = captured(lambda x: hints_wrapper(lambda a: a * W, (x,), {}, hints={}) + 1, X)
    _, operands, node = call_of(module, OPERATORS.hints_wrapper)
    assert len(operands) == 2 and operands[0] == "l_x" and node.kwargs == {"hints": {}}


def test_side_effects_of_a_wrapped_function_are_the_programs():
    def fn(x):
        seen = []

        def body(a):
            seen.append(a.cos())
            a.add_(1)
            return {"sum": a.sum(), "name": "a"}

        result = OPERATORS.wrap(body, x.clone())
        return result["sum"] + len(result["name"]), seen[0] * 2

    module = captured(fn, X)
    outputs = module.wrap_body_0.graph.output_node().args[0]
    assert len(outputs) == 2


def test_nested_functions_are_numbered_inside_of_theirs():
    def inner(a):
        return OPERATORS.wrap(torch.sin, a) + OPERATORS.wrap(torch.cos, a)

    module = captured(lambda x: OPERATORS.wrap(inner, x) + OPERATORS.wrap(torch.exp, x), X)
    names = sorted(name for name, _ in module.named_modules() if name)
    assert names == ["wrap_body_0", "wrap_body_0.wrap_body_0", "wrap_body_0.wrap_body_1", "wrap_body_1"]


def test_an_exception_of_a_wrapped_function_leaves_its_nodes_in_the_graph():
    def fn(x):
        def body(a):
            a.add_(1)
            raise KeyError("missing")

        y = x.clone()
        try:
            OPERATORS.wrap(body, y)
        except KeyError:
            return y * 2
        return y

    assert not captured(fn, X).graph.find_nodes(op="call_function", target=OPERATORS.wrap)


def test_the_grad_mode_of_a_function_is_no_node():
    def body(a):
        with torch.enable_grad():
            b = a * 2
        return b, a * 3

    def fn(x):
        return OPERATORS.wrap_with_set_grad_enabled(False, body, x)

    x = X.clone().requires_grad_()
    module = captured(fn, x)
    assert [out.requires_grad for out in module(x)] == [True, False]
    assert torch.is_grad_enabled()


def test_results_of_an_operator_without_a_gradient_say_so_in_the_backward():
    x = X.clone().requires_grad_()
    module = captured(lambda x: strict_mode(torch.sin, (x,)), x)
    with pytest.raises(RuntimeError, match="Autograd not implemented"):
        module(x)[0].sum().backward()


def test_an_operator_of_an_operator_is_a_node():
    module = captured(lambda x: out_dtype(torch.ops.aten.mul.Tensor, torch.float64, x, x), X)
    (node,) = module.graph.find_nodes(op="call_function", target=OPERATORS.out_dtype)
    assert node.args[0] is torch.ops.aten.mul.Tensor
    with pytest.raises(ValueError, match="only allows"):
        fx.capture(lambda x: out_dtype(torch.ops.aten.sub.Tensor, torch.float64, x, x), X)


def test_print_is_a_node(capsys):
    printed = torch._higher_order_ops.print

    def fn(x):
        printed("sum {} of {n}", x.sum(), n=2)
        return x + 1

    captured(fn, X)
    assert capsys.readouterr().out == "sum 3.0 of 2\n" * 2


def test_errors_of_the_arguments_are_the_programs():
    with pytest.raises(RuntimeError, match="hints must be a dict"):
        fx.capture(lambda x: hints_wrapper(torch.sin, (x,), {}, hints=3), X)
    with pytest.raises(fx.Unsupported, match="cond with wrong arguments|__call__ with wrong arguments"):
        fx.capture(lambda x: OPERATORS.cond(x.sum() > 0, torch.sin, torch.cos, (x,), nothing=1), X)


@pytest.mark.parametrize("op", [torch.cond, OPERATORS.cond])
def test_a_call_with_wrong_arguments_raises_eagers_error(op):
    fn = fx.optimize()(lambda x: op(x.sum() > 0, torch.sin, torch.cos, (x,), nothing=1))
    with pytest.raises(TypeError, match="unexpected keyword argument 'nothing'"):
        fn(X)


# --- operators that this package does not know --------------------------------------------------------


def make_operator(*, fake=True, flat=True):
    """A new operator: ``op(f, *x)``, or ``op(f, x)`` with a tuple. It doubles what its function gives."""

    class Doubled(HigherOrderOperator):
        def __init__(self):
            super().__init__(f"test_doubled_{next(NAMES)}")

        def __call__(self, f, *args):
            return super().__call__(f, *args)

    op = Doubled()

    def run(f, *args):
        return f(*(args if flat else args[0])) * 2

    op.py_impl(torch._C.DispatchKey.CompositeExplicitAutograd)(run)
    op.fallthrough(torch._C.DispatchKey.AutogradCPU)
    if fake:
        torch._higher_order_ops.utils.register_fake(op)(run)
    return op


@pytest.mark.parametrize("flat", [True, False])
def test_an_unknown_operator_is_a_node(flat):
    op = make_operator(flat=flat)
    fn = (lambda x, y: op(torch.mul, x, y)) if flat else (lambda x, y: op(torch.mul, (x, y)))
    name, operands, _ = call_of(captured(fn, X, Y), op)
    assert name.endswith("_body_0") and operands == ["l_x", "l_y"]


@pytest.mark.parametrize("flat", [True, False])
def test_an_unknown_operator_gets_what_its_function_closes_over(flat):
    op = make_operator(flat=flat)
    fn = (lambda x: op(lambda a: a * W, x) + 1) if flat else (lambda x: op(lambda a: a * W, (x,)) + 1)
    module = captured(fn, X)
    assert len(call_of(module, op)[1]) == 2


def test_an_operator_without_a_rule_for_fake_tensors_is_named():
    op = make_operator(fake=False)
    with pytest.raises(fx.Unsupported, match=rf"{op.name()} an operator without a rule for fake tensors"):
        fx.capture(lambda x: op(torch.sin, x), X)
    assert torch.equal(fx.optimize()(lambda x: op(torch.sin, x) + 1)(X), X.sin() * 2 + 1)


# --- what cannot be captured -------------------------------------------------------------------------


DOUBLED = make_operator()


def writes(a):
    a.add_(1)
    return a * 2


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (lambda x: strict_mode(writes, (x,)), "which writes to a tensor"),
        (lambda x: strict_mode(lambda a: a, (x,)), "returns memory of its inputs"),
        (lambda x: strict_mode(lambda a: 1 / 0, (x,)), "raises ZeroDivisionError"),
        (lambda x: strict_mode(3, (x,)), "strict_mode of a int"),
        (lambda x: DOUBLED(writes, x), "which writes to a tensor"),
    ],
)
def test_a_function_that_cannot_be_captured_is_named_with_its_line(fn, why):
    with pytest.raises(fx.Unsupported, match=why) as caught:
        fx.capture(fn, X)
    assert "of a int" in why or re.search(r"\S+ \(.*test_higher_order_operators\.py:\d+\)", str(caught.value))


class Scale(
    getattr(torch._custom_class_base, "CustomClassBase", object)
    if hasattr(torch, "_custom_class_base")
    else object
):
    def __init__(self, factor):
        self.factor = factor
        self.calls = 0
        self.seen = []


class Shift:
    def __init__(self, by):
        self.by = by

    def __eq__(self, other):
        return type(other) is Shift and self.by == other.by

    def __hash__(self):
        return hash(self.by)

    def __fx_repr__(self):
        return f"Shift({self.by!r})", {"Shift": Shift}


@pytest.fixture(scope="module")
def opaque():
    """Operators that take opaque objects."""
    registry = pytest.importorskip("torch._library.opaque_object")
    if not hasattr(registry, "register_custom_class"):
        pytest.skip("this torch registers opaque objects under other names")
    registry.register_custom_class(Scale, typ="symbolic")
    registry.register_custom_class(Shift, typ="constant")
    name = registry.get_opaque_type_name
    library = torch.library.Library("fxstack_opaque_test", "FRAGMENT")
    library.define(f"scaled({name(Scale)} s, Tensor x) -> Tensor")
    library.define(f"shifted({name(Shift)} s, Tensor x) -> Tensor")

    def scaled(s, x):
        s.calls += 1
        s.seen.append(1)
        return x * s.factor

    library.impl("scaled", scaled, "CompositeExplicitAutograd")
    library.impl("shifted", lambda s, x: x + s.by, "CompositeExplicitAutograd")
    for each in ("scaled", "shifted"):
        torch.library.register_fake(
            f"fxstack_opaque_test::{each}", lambda s, x: torch.empty_like(x), lib=library
        )
    yield torch.ops.fxstack_opaque_test
    registry.unregister_custom_class(Scale)
    registry.unregister_custom_class(Shift)
    library._destroy()


def graphs_of(fn, *calls, fullgraph=True):
    """Run the calls compiled, compare each with what is expected, and return the number of graphs."""
    graphs = []

    def backend(module, _inputs):
        graphs.append(module)
        return module.forward

    compiled = fx.optimize(backend, fullgraph=fullgraph)(fn)
    for args, expected in calls:
        torch.testing.assert_close(compiled(*args), expected)
    return len(graphs)


def test_a_symbolic_object_is_an_operand(opaque):
    fn = lambda s, x: opaque.scaled(s, x) + 1  # noqa: E731
    assert graphs_of(fn, ((Scale(2.0), X), X * 2 + 1), ((Scale(3.0), X), X * 3 + 1)) == 2


def test_a_constant_object_is_guarded_by_its_attributes(opaque):
    fn = lambda s, x: opaque.shifted(s, x) * 2  # noqa: E731
    calls = [((Shift(by), X), (X + by) * 2) for by in (1.0, 1.0, 2.0)]
    assert graphs_of(fn, *calls) == 2
    assert graphs_of(lambda x: opaque.shifted(Shift(4.0), x), ((X,), X + 4)) == 1


def test_an_object_is_read_again_after_an_operator(opaque):
    fn = lambda s, x: opaque.scaled(s, x) + s.calls  # noqa: E731
    assert graphs_of(fn, ((Scale(2.0), X), X * 2 + 1), fullgraph=False) == 2


def test_a_part_of_an_object_is_read_again_after_an_operator(opaque):
    def fn(s, x):
        seen = s.seen
        y = opaque.scaled(s, x) + len(seen)
        return y + len(seen)

    graphs_of(fn, ((Scale(2.0), X), X * 2 + 2), fullgraph=False)


def test_an_operator_gets_a_changed_object(opaque):
    def fn(s, x):
        s.factor = 5.0
        return opaque.scaled(s, x) + 1

    graphs_of(fn, ((Scale(2.0), X), X * 5 + 1), fullgraph=False)
