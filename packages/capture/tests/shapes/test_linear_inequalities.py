"""Comparisons of one symbol: against sympy, number by number, and against what ShapeEnv decides."""

import itertools
import random

import pytest
import sympy
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from fxstack_capture.shapes.symbolic.env import CaptureShapeEnv, NamedSource
from fxstack_capture.shapes.symbolic.linear_inequalities import RELATIONS, Question, line_of, question
from fxstack_capture.sources import Local

S = sympy.Symbol("s", integer=True)
T = sympy.Symbol("t", integer=True)
NUMBERS = range(-12, 13)
BOUNDS = (None, -3, 0, 2, 5)


def asked(name, left, right):
    return question(RELATIONS[name](left, right, evaluate=False))


def inside(asked, n):
    return asked.answer(n, n)


@pytest.mark.parametrize("name", RELATIONS)
def test_a_question_holds_where_the_comparison_does(name):
    for slope, offset, other in itertools.product((-3, -1, 1, 2), (-2, 0, 3), (-4, 0, 1)):
        found = asked(name, slope * S + offset, sympy.Integer(other))
        for n in NUMBERS:
            true = bool(RELATIONS[name](slope * n + offset, other))
            assert (found if isinstance(found, bool) else inside(found, n)) is true


@pytest.mark.parametrize("name", RELATIONS)
def test_an_answer_for_a_range_is_that_for_all_of_it(name):
    for slope, low, high in itertools.product((-2, 1, 3), BOUNDS, BOUNDS):
        numbers = [n for n in NUMBERS if (low is None or n >= low) and (high is None or n <= high)]
        found = asked(name, slope * S, sympy.Integer(3))
        if not numbers or isinstance(found, bool):
            continue
        answer, each = found.answer(low, high), {inside(found, n) for n in numbers}
        assert each == {answer} if answer is not None else True
        if None not in (low, high):
            assert (answer is None) is (len(each) == 2)


@pytest.mark.parametrize("truth", [True, False])
@pytest.mark.parametrize("name", ["lt", "le", "gt", "ge"])
def test_what_remains_is_where_the_answer_is_this(name, truth):
    for slope, offset in itertools.product((-3, -1, 2), (-2, 0, 5)):
        found = asked(name, slope * S + offset, sympy.Integer(1))
        low, high = found.remaining(answer=truth)
        for n in NUMBERS:
            kept = (low is None or n >= low) and (high is None or n <= high)
            assert kept is (inside(found, n) is truth)


def test_both_sides_may_have_the_symbol():
    assert asked("gt", 3 * S, S + 4) == Question(S, 3, None)
    assert asked("gt", S + 1, S) is True
    assert asked("eq", S, S + 1) is False
    assert asked("ge", S, 2 * S) == Question(S, None, 0)


@pytest.mark.parametrize("expr", [S * T, S + T, S**2, S / 2, sympy.Mod(S, 2), sympy.Symbol("x")])
def test_anything_else_is_no_line(expr):
    assert line_of(expr) is None


# --- beside ShapeEnv -------------------------------------------------------------------------------


def size(env, hint):
    source = NamedSource(Local("x"))
    symbol = env.create_symbol(hint, source=source, dynamic_dim=DimDynamic.DYNAMIC)
    return env.create_symintnode(symbol, hint=hint, source=source)


def decisions(env, seed):
    """Answers to random questions about two sizes, and the ranges that are left."""
    draw = random.Random(seed)
    sizes = [size(env, draw.randint(2, 9)) for _ in range(2)]
    answers = []
    for _ in range(12):
        n = draw.choice(sizes) * draw.choice((1, 2, 3)) + draw.randint(-3, 3)
        relation = getattr(n, f"__{draw.choice(['lt', 'le', 'gt', 'ge', 'ne'])}__")
        answers.append(bool(relation(draw.choice((draw.randint(0, 20), draw.choice(sizes))))))
    return answers, [env.bound_sympy(n.node.expr) for n in sizes], [n.node.hint for n in sizes]


@pytest.mark.parametrize("active", [True, False])
def test_answers_are_those_of_shape_env_and_ranges_as_narrow(active):
    for seed in range(5):
        env = CaptureShapeEnv(tuple)
        env.memo.active = active
        ours, theirs = decisions(env, seed), decisions(ShapeEnv(), seed)
        assert ours[0] == theirs[0]
        for mine, other, now in zip(ours[1], theirs[1], ours[2], strict=True):
            assert mine.issubset(other) and now in mine


def guards_after(relation, *more):
    env = CaptureShapeEnv(tuple)
    env.memo.active = True
    n = size(env, 6)
    for ask in (relation, *more):
        ask(n)
    return [str(guard) for guard, _ in env.guard_stacks]


def test_what_follows_is_not_guarded_again():
    assert len(guards_after(lambda n: bool(n > 4), lambda n: bool(3 * n > 14))) == 1
    assert len(guards_after(lambda n: bool(n != 9), lambda n: bool(n == 9))) == 1
    assert len(guards_after(lambda n: bool(n > 4), lambda n: bool(n > 5))) == 2


def test_a_guard_is_in_the_words_of_the_program():
    (guard,) = guards_after(lambda n: bool(2 * n + 1 > 30))
    assert guard.startswith("2*s") and guard.endswith("+ 1 <= 30")
