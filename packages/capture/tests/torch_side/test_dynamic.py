"""Symbolic sizes and numbers: one graph for many sizes, and guards that say exactly for which."""

from __future__ import annotations

import math
import operator

import pytest
import sympy
import torch
import torch.nn.functional as F
from recorder import compare, evaluate, trace_calls
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

from fxstack_capture.shapes import marks
from fxstack_capture.shapes.history import FrameHistory


def t(*shape, **kw):
    torch.manual_seed(1)
    return torch.randn(*shape, **kw)


def holds(captured, *args):
    """Whether all guards hold for these arguments (``ShapeHolds`` by sympy)."""
    frame = {f"a{i}": value for i, value in enumerate(args)}
    for guard in captured.trace.guards:
        check = guard.check
        match type(check).__name__:
            case "TensorIs":
                real = evaluate(guard.source, frame)
                if real.dim() != len(check.sizes):
                    return False
                pairs = [*zip(check.sizes, real.size()), *zip(check.strides, real.stride())]
                if any(a is not None and a != b for a, b in pairs):
                    return False
            case "ShapeHolds":
                values = {s: evaluate(source, frame) for s, source in check.symbols}
                if not check.expr.subs(values):
                    return False
            case "Equals":
                if evaluate(guard.source, frame) != check.value:
                    return False
    return True


def test_guards_speak_of_what_an_earlier_input_is_a_view_of():
    base = t(3, 4, requires_grad=True) * 1
    captured = trace_calls(lambda view, other: view.sum() + other.dim(), base[0], base)
    assert holds(captured, base[0], base)
    assert not holds(captured, base[0], t(5, requires_grad=True) * 1)
    assert not holds(captured, base[0], t(3, 5, requires_grad=True) * 1)


def retraced(fn, *calls, **options):
    """Trace for each call in turn with one history; the last capture."""
    history = FrameHistory()
    for args in calls:
        captured = trace_calls(fn, *args, history=history, **options)
    return captured


CASES = {
    "pointwise": (lambda x: x * 2 + 1, (3, 4)),
    "reduce": (lambda x: x.sum(0) / x.shape[0], (3, 4)),
    "reshape": (lambda x: x.reshape(-1, x.shape[1] // 2, 2), (3, 4)),
    "flatten": (lambda x: x.view(x.size(0) * x.size(1)), (3, 4)),
    "matmul": (lambda x: x @ x.t(), (3, 4)),
    "cat": (lambda x: torch.cat([x, x[:, 1:]], 1), (3, 4)),
    "factory": (
        lambda x: torch.arange(x.shape[0] + 1).sum() + torch.zeros(x.size(1), x.shape[0]).sum() + x,
        (3, 4),
    ),
    "expand": (lambda x: x.sum(1, keepdim=True).expand(-1, x.shape[1] * 2), (3, 4)),
    "softmax": (lambda x: F.softmax(x, -1), (3, 4)),
    "pad": (lambda x: F.pad(x, (1, x.shape[0])), (3, 4)),
    "size_result": (lambda x: (x * 2, x.shape[0], x.numel() + 1), (3, 4)),
    "split": (lambda x: x.split(2), (4, 4)),
    "min_max": (lambda x: x[: torch.sym_min(x.shape[0], x.shape[1])], (3, 4)),
    "float": (lambda x: x * (x.shape[0] / 3), (3, 4)),
    "sqrt": (lambda x: x * x.shape[1] ** 0.5, (3, 4)),
    "conv": (lambda x: F.conv2d(x[None, None], x.new_ones(1, 1, 2, 2)), (5, 6)),
    "transposed": (lambda x: x.t().contiguous() + 1, (3, 4)),
    "layer_norm": (lambda x: F.layer_norm(x, x.shape[1:]), (3, 4)),
}
SIZES = [(3, 4), (5, 6), (7, 8), (10, 4), (33, 100), (4, 4)]


@pytest.mark.parametrize("name", CASES)
def test_one_graph_for_many_sizes(name):
    fn, _ = CASES[name]
    captured = trace_calls(fn, t(6, 8), dynamic=True)
    accepted = 0
    for size in SIZES:
        if holds(captured, t(*size)):
            accepted += 1
            compare(captured, fn, t(*size))
    assert accepted >= (1 if name == "split" else 4), [g.check for g in captured.trace.guards]
    assert not holds(captured, t(1, 4)) and not holds(captured, t(4, 1))


def test_static_first_then_dynamic():
    fn = lambda x: x * x.shape[0]
    first = retraced(fn, (t(3, 4),))
    assert holds(first, t(3, 4)) and not holds(first, t(5, 4))
    second = retraced(fn, (t(3, 4),), (t(5, 4),))
    assert holds(second, t(9, 4)) and not holds(second, t(9, 5))
    compare(second, fn, t(9, 4))


def test_dynamic_false_never():
    fn = lambda x: x * x.shape[0]
    assert not holds(retraced(fn, (t(3),), (t(5),), dynamic=False), t(9))


def test_symbols_are_inputs_found_once():
    captured = trace_calls(
        lambda x, y: x.new_zeros(x.shape[0] * y.shape[0]) + y.shape[0] + x.shape[0], t(3), t(5), dynamic=True
    )
    assert sorted(s.name for s in captured.code.inputs) == ["a0", "a0.size(0)", "a1.size(0)"]


def test_symbols_of_unused_inputs_are_no_inputs():
    captured = trace_calls(lambda x, y: y + 1, t(3), t(5), dynamic=True)
    assert [s.name for s in captured.code.inputs] == ["a1", "a1.size(0)"]


def test_symbols_of_sizes_are_inputs():
    assert [s.name for s in trace_calls(lambda x: x + 1, t(3), dynamic=True).code.inputs] == [
        "a0",
        "a0.size(0)",
    ]


def test_equal_sizes_share_a_symbol_and_a_guard():
    fn = lambda x, y: x.sum() + y.sum()
    captured = trace_calls(fn, t(3), t(3), dynamic=True)
    assert holds(captured, t(4), t(4)) and not holds(captured, t(4), t(5))


def test_equality_that_the_program_needs():
    fn = lambda x, y: x + y
    captured = retraced(fn, (t(3), t(3)), (t(4), t(4)))
    assert holds(captured, t(9), t(9)) and not holds(captured, t(9), t(8))


def test_comparison_is_guarded():
    fn = lambda x: x + 1 if x.shape[0] > 5 else x - 1
    captured = trace_calls(fn, t(7), dynamic=True)
    assert holds(captured, t(6)) and not holds(captured, t(5))
    assert any("a0.size(0)" in g.check.text for g in captured.guards("ShapeHolds"))


def test_divisibility_is_guarded():
    captured = trace_calls(lambda x: x.view(-1, 4), t(16), dynamic=True)
    assert holds(captured, t(20)) and not holds(captured, t(22))


def test_specialised_size_is_guarded():
    def fn(x):
        return [a for a in range(operator.index(x.shape[0]))] and x + 1

    captured = trace_calls(fn, t(6), dynamic=True)
    assert holds(captured, t(6)) and not holds(captured, t(7))


def test_strides_follow_sizes():
    fn = lambda x: x * 2
    captured = retraced(fn, (t(3, 4, 5),), (t(3, 6, 7),))
    assert holds(captured, t(3, 8, 9))
    assert not holds(captured, t(3, 9, 8).transpose(1, 2))
    compare(captured, fn, t(3, 8, 9))


def test_dynamic_stride():
    fn = lambda x: (x * 2, x.stride(0))
    captured = retraced(fn, (t(3, 10)[:, :4],), (t(3, 20)[:, :4],))
    assert holds(captured, t(3, 30)[:, :4])
    compare(captured, fn, t(3, 30)[:, :4])


def test_storage_offset_is_guarded_only_if_read():
    base = t(20)
    assert not trace_calls(lambda x: x * 2, base[4:8]).guards("Equals")
    fn = lambda x: torch.as_strided(x, (2,), (1,)) + x.storage_offset()
    first = trace_calls(fn, base[4:8])
    assert holds(first, base[4:8]) and not holds(first, base[5:9])
    second = retraced(fn, (base[4:8],), (base[5:9],))
    assert holds(second, base[4:8]) and holds(second, base[7:11])


def test_numbers():
    fn = lambda x, n: (x * n, n + 1)
    first = retraced(fn, (t(3), 2))
    assert holds(first, t(3), 2) and not holds(first, t(3), 5)
    second = retraced(fn, (t(3), 2), (t(3), 5))
    for n in (-3, 0, 1, 7):
        assert holds(second, t(3), n)
        compare(second, fn, t(3), n)


@pytest.mark.parametrize("values", [(2.0, 0.5), (0.5, math.pi)])
def test_floats(values):
    fn = lambda x, n: (x * n, n * 2)
    captured = retraced(fn, *((t(3), v) for v in values))
    for n in (-3.5, 0.0, 1.0, 7.25):
        assert holds(captured, t(3), n)
        compare(captured, fn, t(3), n)


def test_parameters_stay_static():
    captured = trace_calls(lambda x, w: x @ w, t(6, 4), torch.nn.Parameter(t(4, 4)), dynamic=True)
    assert captured.guards("TensorIs")[1].check.sizes == (4, 4)


def test_mark_dynamic():
    x = t(4, 5)
    marks.mark_dynamic(x, 0, min=3, max=9)
    captured = trace_calls(lambda x: x * 2, x)
    assert holds(captured, t(3, 5)) and holds(captured, t(9, 5))
    assert not holds(captured, t(2, 5)) and not holds(captured, t(10, 5)) and not holds(captured, t(4, 6))


def test_torchs_own_marks_are_honoured():
    x = t(4, 5)
    torch._dynamo.mark_dynamic(x, 1)
    captured = trace_calls(lambda x: x * 2, x)
    assert holds(captured, t(4, 9)) and not holds(captured, t(5, 5))


def test_violated_mark_names_the_line():
    x = t(4, 5)
    marks.mark_dynamic(x, 0)
    with pytest.raises(ConstraintViolationError) as caught:
        trace_calls(lambda x: x.view(4, 5), x)
    message = str(caught.value)
    assert "a0.size(0) was marked dynamic" in message and "== 4" in message
    assert f'File "{__file__}", line ' in message and "maybe_mark_dynamic" in message


def test_mark_dynamic_on_one():
    x = t(1, 5)
    marks.mark_dynamic(x, 0)
    guards = trace_calls(lambda x: x * 2, x)
    assert holds(guards, t(1, 5)) and not holds(guards, t(2, 5))


def test_weak_mark_may_specialise():
    x = t(4, 5)
    marks.maybe_mark_dynamic(x, 0)
    assert holds(trace_calls(lambda x: x * 2, x), t(7, 5))
    assert not holds(trace_calls(lambda x: x.view(4, 5), x), t(7, 5))


def test_mark_static():
    x, y = t(4, 5), t(6, 5)
    marks.mark_static(y, 0)
    assert not holds(retraced(lambda x: x * 2, (x,), (y,)), t(7, 5))


def test_mark_static_of_a_dimension_that_the_tensor_lacks_is_ignored_as_by_torch():
    def fn(x):
        torch._dynamo.mark_static(x, 7)
        return x * 2

    compare(trace_calls(fn, t(4, 5)), fn, t(4, 5))


def test_mark_unbacked():
    x = t(4, 5)
    marks.mark_unbacked(x, 0)
    captured = trace_calls(lambda x: x * 2, x)
    for size in (0, 1, 7):
        assert holds(captured, t(size, 5))
        compare(captured, lambda x: x * 2, t(size, 5))


def test_guards_have_the_users_line():
    captured = trace_calls(lambda x: x if x.shape[0] > 5 else -x, t(7), dynamic=True)
    stacks = [g.stack for g in captured.guards("ShapeHolds") if g.stack]
    assert stacks and stacks[0][-1][0] == __file__


def test_expressions_are_computed_once():
    captured = trace_calls(
        lambda x: x.new_zeros(x.shape[0] * 2) + x.new_ones(x.shape[0] * 2), t(7), dynamic=True
    )
    assert captured.targets.count("mul") == 1
    for node in captured.code.graph_module.graph.nodes:
        assert "val" in node.meta


def test_symbols_of_guards_are_inputs():
    captured = trace_calls(lambda x: x.view(-1, 4), t(16), dynamic=True)
    for guard in captured.guards("ShapeHolds"):
        assert {s for s, _ in guard.check.symbols} == guard.check.expr.free_symbols
        assert all(isinstance(s, sympy.Symbol) for s, _ in guard.check.symbols)
