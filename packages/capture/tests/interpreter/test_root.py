# ruff: noqa: F821, F401, PLE0704, ICN001, PTH119, PIE800 - programs with faults
"""The root frame: lazy arguments, stopping at a step, graph breaks."""

import pytest
from plain import interpreter

from fxstack_capture.breaks import GraphBreak, graph_break
from fxstack_capture.bytecode.null import NULL
from fxstack_capture.sources import Local
from fxstack_capture.trace.records import DeferredLocal, Raised, Returned, Stopped


def breaking(*args, **kwargs):
    raise graph_break("user-break", "here")


breaking.native = True


def run(fn, *args, stop_at=None, interp=None):
    interp = interp or interpreter()
    names = fn.__code__.co_varnames
    values = {name: DeferredLocal(value, Local(name)) for name, value in zip(names, args)}
    return interp.run_root(fn, fn.__code__, values, stop_at)


def stopped(fn, *args):
    """The state just before the step in which ``fn`` breaks."""
    with pytest.raises(GraphBreak) as caught:
        run(fn, *args)
    state = run(fn, *args, stop_at=caught.value.path)
    assert isinstance(state, Stopped)
    assert len(state.frames) == len(caught.value.path)
    return state.frames[-1], caught.value


def opname_at(fn, offset):
    import dis

    names = {i.offset: i.opname for i in dis.get_instructions(fn)}
    return names[offset]


def test_returned_and_raised():
    def fail(x):
        return 1 // x

    assert run(fail, 1) == Returned(1)
    outcome = run(fail, 0)
    assert isinstance(outcome, Raised)
    assert isinstance(outcome.exception, ZeroDivisionError)


def test_arguments_enter_when_loaded():
    entered = []
    interp = interpreter()
    enter = interp.trace.objects.enter
    interp.trace.objects.enter = lambda obj, source: entered.append(source.name) or enter(obj, source)

    def program(a, b, c):
        if a:
            return b
        return c

    assert run(program, 0, 1, 2, interp=interp) == Returned(2)
    assert entered == ["a", "c"]


def test_snapshot_before_a_call_with_keywords():
    def program(a, b):
        c = a + 1
        return [c, breaking(a, key=c)]

    state, reason = stopped(program, 1, 2)
    assert opname_at(program, state.offset) in ("KW_NAMES", "LOAD_CONST", "CALL_KW")
    assert state.local_values["a"] == 1
    assert state.local_values["c"] == 2
    assert isinstance(state.local_values["b"], DeferredLocal)
    assert state.stack[0] == 2
    assert NULL in state.stack[1:3]
    assert breaking in state.stack[1:3]
    assert state.stack[3:5] == (1, 2)
    assert reason.record.stack[-1][1] == program.__code__.co_firstlineno + 2


def test_snapshot_inside_of_a_handler():
    def program(a):
        try:
            raise ValueError(a)
        except ValueError as error:
            breaking(error)

    state, _ = stopped(program, 1)
    assert state.handling == 1
    assert isinstance(state.local_values["error"], ValueError)


def test_snapshot_with_cells():
    def program(a, b):
        def inner():
            return a

        a += 1
        breaking(inner)
        return inner, b

    state, _ = stopped(program, 1, 2)
    assert set(state.cells) == {"a"}
    assert state.cells["a"].cell_contents == 2
    assert set(state.local_values) == {"b", "inner"}


def callee(x):
    try:
        return breaking(x)
    except BaseException:
        return "caught"
    finally:
        x = 5


def test_break_in_a_callee_stops_there_and_in_its_callers():
    def program(x):
        y = x * 2
        return [y, callee(y)]

    with pytest.raises(GraphBreak) as caught:
        run(program, 3)
    outer, inner = run(program, 3, stop_at=caught.value.path).frames
    assert (outer.stack, outer.local_values["y"]) == ((6,), 6)
    assert opname_at(program, outer.offset) in ("PRECALL", "CALL")
    assert (inner.code, inner.local_values) == (callee.__code__, {"x": 6})
    stack = caught.value.record.stack
    assert [name.split(".")[-1] for *_, name in stack] == ["program", "callee"]
    assert [line for _, line, _ in stack] == [
        program.__code__.co_firstlineno + 2,
        callee.__code__.co_firstlineno + 2,
    ]


def test_break_below_c_code_stops_the_caller_of_the_c_code():
    def middle(x):
        return list(map(breaking, [x]))

    def program(x):
        return middle(x)

    outer, inner = (stopped(program, 3), run(program, 3, stop_at=(0,)))
    assert outer[0].code is middle.__code__
    assert inner.frames[0].code is program.__code__


def test_exceptions_being_handled_in_callers():
    def handles(x):
        try:
            raise KeyError(x)
        except KeyError:
            breaking()

    def program(x):
        try:
            raise ValueError(x)
        except ValueError:
            handles(x)

    with pytest.raises(GraphBreak) as caught:
        run(program, 1)
    outer, inner = run(program, 1, stop_at=caught.value.path).frames
    assert (outer.handling, outer.handled_outside) == (1, None)
    assert isinstance(outer.handled, ValueError)
    assert inner.handled_outside is outer.handled
    assert isinstance(inner.handled, KeyError)


def test_break_inside_a_loop_counts_executed_steps():
    def program(n):
        total = 0
        for i in range(n):
            total += i
            if i == 3:
                breaking()
        return total

    state, _ = stopped(program, 10)
    assert state.local_values["total"] == 6
    assert next(state.stack[0]) == 4


def test_break_passes_through_generators_and_c_code():
    def program():
        def gen():
            try:
                yield 1
                breaking()
            except BaseException:
                yield 2

        return list(gen())

    with pytest.raises(GraphBreak):
        run(program)


def test_stops_at_every_step():
    def program(a):
        out = []
        for i in (1, 2):
            with_default = a.get(i, 0)
            out.append({"i": i, **{"v": with_default}})
        return out

    offsets = []
    count = 0
    while isinstance(state := run(program, {1: 5}, stop_at=(count,)), Stopped):
        offsets.append(state.frames[0].offset)
        count += 1
    assert state == Returned(program({1: 5}))
    assert len(offsets) > 20


def test_deep_recursion_breaks():
    def program(n):
        def down(k):
            return 0 if k == 0 else 1 + down(k - 1)

        return down(n)

    with pytest.raises(GraphBreak) as caught:
        run(program, 1000)
    assert caught.value.record.reason.id == "inline-limit"


@pytest.mark.parametrize("what", ["coroutine", "import"])
def test_unsupported(what):
    async def coroutine():
        pass

    def calls_coroutine():
        return interpreter().call_function(coroutine, (), {})

    def imports():
        import a_module_that_is_not_loaded

    with pytest.raises(GraphBreak):
        calls_coroutine() if what == "coroutine" else run(imports)
