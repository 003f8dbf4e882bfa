"""Code that runs while its surroundings are traced."""

import io

import pytest
import torch

import fxstack_capture as fx
from fxstack_capture import comptime
from fxstack_capture.driver.errors import TracingWarning

X = torch.ones(3)


def seen(fn, *args, **options):
    """What ``fn(ctx)`` gives in the middle of a traced function with locals x, n, y."""
    found = []

    def program(x, n):
        y = x * n
        comptime(lambda ctx: found.append(fn(ctx)))
        return [y, y + n][1]

    assert torch.equal(fx.optimize(**options)(program)(X, 3), X * 3 + 3)
    return found[-1]


def test_nothing_happens_in_plain_python(capsys):
    assert comptime(lambda ctx: 1 / 0) is None
    assert comptime(lambda ctx: 1 / 0, lambda: "plain") == "plain"
    comptime.print_graph()
    assert capsys.readouterr().out == ""


def test_locals():
    values = seen(lambda ctx: ctx.locals())
    assert set(values) == {"x", "n", "y", "found", "fn"} & set(values) | {"x", "n", "y"}
    assert (values["x"].source, values["y"].source) == ("x", None)
    assert values["n"].as_python_constant() == 3


def test_looking_guards_nothing():
    guards = []

    def program(x, deferred, n):
        y = x * 2
        comptime(lambda ctx: ctx.print_locals(file=io.StringIO()))
        comptime(lambda ctx: ctx.locals()["deferred"].python_type())
        comptime(lambda ctx: guards.extend(g.source.name for g in ctx.guards()))
        comptime(lambda ctx: ctx.get_local("n").value)
        comptime(lambda ctx: guards.append([g.source.name for g in ctx.guards()]))
        return y

    assert torch.equal(fx.optimize(fullgraph=True)(program)(X, [7], 3), X * 2)
    *before, after = guards
    assert not {"deferred", "n"} & set(before)
    assert "n" in after
    assert "deferred" not in after


def test_nothing_warns(recwarn):
    test_locals()
    test_symbolic_numbers()
    test_facts()
    assert not [w for w in recwarn if w.category is TracingWarning]


def test_symbolic_numbers():
    number = seen(lambda ctx: ctx.get_local("n"), dynamic=True)
    assert number.is_dynamic()
    assert number.python_type() is int
    with pytest.raises(ValueError, match="not known while tracing"):
        number.as_python_constant()
    assert seen(lambda ctx: ctx.force_static(ctx.get_local("n")), dynamic=True) == 3


def test_graph_guards_and_frames():
    assert "mul" in str(seen(lambda ctx: ctx.graph()))
    assert "x" in [guard.source.name for guard in seen(lambda ctx: ctx.guards())]
    assert seen(lambda ctx: ctx.user_stack())[-1][2].endswith("program")


def test_short_forms_print(capsys):
    def program(x):
        y = x + 1
        comptime.print(y)
        comptime.print_locals()
        comptime.print_graph()
        comptime.print_guards()
        comptime.print_bt()
        return [x, comptime.print_value_stack(), y]

    fx.optimize(fullgraph=True)(program)(X)
    out = capsys.readouterr().out
    for text in (
        "tensor(torch.float32, [3])\n",
        "x = tensor",
        "= l_x + 1",
        "type(x) is torch.Tensor and x.dtype",
    ):
        assert text in out
    assert "in test_short_forms_print.<locals>.program" in out
    assert "- tensor(torch.float32, [3]) from x" in out


def test_graph_break():
    def program(x):
        y = x + 1
        comptime.graph_break()
        return y * 2

    explained = fx.explain(program)(X)
    assert [b.reason.id for b in explained.breaks] == ["user-break"]
    assert len(explained.graphs) == 2


def test_assert_static():
    with pytest.raises(fx.ComptimeError, match="ValueError: expected a static value, got tensor"):
        seen(lambda ctx: ctx.assert_static(ctx.get_local("x")), dynamic=True)


def test_facts():
    assert seen(lambda ctx: ctx.assume(ctx.get_local("n").value > 2), dynamic=True) is None


def test_bytecode_is_shown_with_the_place(capsys):
    def program(x):
        y = x + 1
        comptime.print_disas()
        return y

    fx.optimize()(program)(X)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "-->" in line]
    assert "CALL" in line


def test_the_stack_is_shown_around_an_expression(capsys):
    def program(x):
        return x + comptime.print_value_stack_and_return(x * 2)

    assert torch.equal(fx.optimize(fullgraph=True)(program)(X), X * 3)
    assert "- tensor(torch.float32, [3]) from x" in capsys.readouterr().out
    assert torch.equal(program(X), X * 3)


def test_a_forced_number_is_static():
    def program(x, n):
        comptime.force_static(n)
        comptime.assert_static(n)
        comptime.sleep(0)
        comptime(lambda ctx: kinds.append(ctx.get_local("x").is_python_constant()))
        comptime(lambda ctx: kinds.append(ctx.get_local("n").as_python_constant()))
        return x * n

    kinds = []
    optimised = fx.optimize(dynamic=True, fullgraph=True)(program)
    assert [optimised(X, n).tolist()[0] for n in (3, 4)] == [3, 4]
    assert kinds == [False, 3, False, 4]
    assert [type(kind) for kind in kinds] == [bool, int] * 2


def test_frames_are_the_programs():
    """Functions that a graph breaks in below C code are called by ``polyfill``, which nobody sees."""

    def key(value):
        fx.graph_break()
        comptime(lambda ctx: found.append(ctx.get_local("outer", stacklevel=1).value))
        comptime(lambda ctx: found.append([name for *_, name in ctx.user_stack()]))
        return value

    def program(x):
        outer = 5
        return x + sorted([2, 1], key=key)[0] + outer

    found = []
    assert torch.equal(fx.optimize()(program)(X), X + 6)
    assert 5 in found
    assert not [names for names in found if names != 5 and "sorted_items" in names]
