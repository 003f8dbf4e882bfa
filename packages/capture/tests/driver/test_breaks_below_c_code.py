"""Graph breaks in functions that operators, attributes, loops and builtin functions call: the caller goes on compiled."""

import functools
import operator

import pytest
import torch
from running import check

import fxstack_capture as fx

X = torch.tensor([1.0, 2.0, 3.0])


def leaf(x):
    x = x * 2
    fx.graph_break()
    return x + 3


class Value:
    def __init__(self, v):
        self.v = v

    def __add__(self, other):
        return Value(leaf(self.v) + (other.v if isinstance(other, Value) else other))

    def __radd__(self, other):
        return Value(leaf(self.v) - other)

    def __iadd__(self, other):
        self.v = leaf(self.v) + other
        return self

    def __neg__(self):
        return leaf(self.v)

    def __lt__(self, other):
        fx.graph_break()
        return float(self.v.sum()) < float(other.v.sum())

    def __eq__(self, other):
        fx.graph_break()
        return NotImplemented

    __hash__ = None

    def __bool__(self):
        fx.graph_break()
        return True

    def __len__(self):
        fx.graph_break()
        return 3  # noqa: PLE0304

    def __contains__(self, key):
        fx.graph_break()
        return key

    def __str__(self):
        fx.graph_break()
        return "value"

    def __delitem__(self, key):
        self.v = leaf(self.v)

    def __getitem__(self, key):
        return leaf(self.v[key])

    @property
    def twice(self):
        return leaf(self.v) * 2

    @twice.setter
    def twice(self, value):
        self.v = leaf(value)

    @functools.cached_property
    def kept(self):
        return leaf(self.v)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return leaf(self.v) + len(name)


class Stubborn(Value):
    def __add__(self, other):
        fx.graph_break()
        return NotImplemented

    __sub__ = __gt__ = __rsub__ = __add__


class Descriptor:
    def __get__(self, owner, cls=None):
        return leaf(owner.x)

    def __set__(self, owner, value):
        owner.x = leaf(value)


class Custom:
    field = Descriptor()

    def __init__(self, x):
        self.x = x

    def __getattribute__(self, name):
        return leaf(X) if name == "own" else object.__getattribute__(self, name)


class Countdown:
    def __init__(self, x, n):
        self.x, self.n = x, n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return leaf(self.x) + self.n


class Made:
    def __new__(cls, x):
        made = object.__new__(cls)
        made.x = leaf(x)
        return made

    def __init__(self, x):
        self.y = leaf(x)


class Meta(type):
    def __call__(cls, x):
        made = type.__call__(cls, x)
        made.z = leaf(made.x)
        return made


class OfMeta(metaclass=Meta):
    def __init__(self, x):
        self.x = x


class Wrong:
    def __init__(self, x):
        self.x = x

    def __bool__(self):
        fx.graph_break()
        return 3  # noqa: PLE0304

    __len__ = __iter__ = __str__ = __bool__

    @property
    def missing(self):
        fx.graph_break()
        raise AttributeError("gone")

    def __contains__(self, key):
        fx.graph_break()
        raise KeyError(key)


def told(fn):
    try:
        return fn()
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        return type(error), str(error)


def loop(x):
    total = 0
    for y in Countdown(x + 1, 3):
        total = total + y
    return total * 2


def loop_with_else(x):
    for y in Countdown(x, 2):
        if y is None:
            break
    else:
        x = x + 1
    return x * 2


def mapped(x):
    total = 0
    for y in map(lambda a, b: leaf(a) * b, [x, x + 1, x + 2], (1, 2, 3)):
        total = total + y
    return total


def jump(x):
    value = Value(x + 1)
    if value:
        x = x + 1
    if not value:
        x = x + 2
    return x * 2, not value, value and 1


def setter(x):
    value = Value(x)
    value.twice = x + 1
    del value[0]
    setattr(value, "twice", value.v)  # noqa: B010
    return value.v * 2


def descriptors(x):
    held = Custom(x + 1)
    held.field = x
    return held.field + held.own


def comparing(x):
    value = Value(x)
    return value == Value(x), value != 3, value < Value(x + 1), x > 0, value > Value(x - 1), x + 1


def wrong(x):
    held, value, y = Wrong(x + 1), Stubborn(x), x * 2
    calls = (
        *(lambda f=f: f(held) for f in (bool, len, iter, str, list, operator.not_)),
        *(lambda: held.missing, lambda: 3 in held, lambda: f"{held}", lambda: getattr(held, "x", 1)),
        *(lambda: value - value, lambda: value - 3, lambda: X - value, lambda: value > value),
        *(lambda: operator.isub(value, 3), lambda: getattr(held, "missing", 5)),
    )
    return [told(call) for call in calls], y + 1


def refused_to_the_end(x):
    return Stubborn(x + 1) - Stubborn(x)


def in_a_handler(x):
    try:
        raise ValueError
    except ValueError:
        y = Value(x).twice
        try:
            y = y + Wrong(y).missing
        except AttributeError as error:
            return y, repr(error.__context__)


def compared(x):
    def backwards(a, b):
        fx.graph_break()
        return b - a

    y = x + 1
    kind = functools.cmp_to_key(backwards)
    key = kind(3)
    return y * 2, sorted([1, 3, 2], key=kind), key < kind(4), key.obj


@pytest.mark.parametrize(
    ("program", "graphs"),
    [
        (lambda x: (Value(x + 1) + 1).v * 2, 2),
        (lambda x: (Value(x) + Value(x * 2)).v * 2, 2),
        (lambda x: (x + Value(x)).v * 2, 2),
        (lambda x: (Stubborn(x) + Value(x)).v, None),
        (lambda x: operator.iadd(Value(x), 2).v * 2, 2),
        (lambda x: -Value(x + 1) * 2, 2),
        (lambda x: (x + 1, Value(x) < Value(x * 2)), None),
        (comparing, None),
        (jump, None),
        (lambda x: (x + 1, True in Value(x), False not in Value(x)), 1),
        (lambda x: x * len(Value(x)) + 1, None),
        (lambda x: (x + 1, str(Value(x)), f"<{Value(x)}>", repr(3)), 1),
        (lambda x: Value(x).twice + 1, 2),
        (lambda x: Value(x).missing + Value(x + 1).other, 3),
        (lambda x: Value(x).kept + 1, 2),
        (lambda x: Value(x)[1:] + 1, 2),
        (lambda x: (getattr(Value(x), "twice"), hasattr(Value(x), "a"), getattr(Value(x), "b", 1)), None),
        (setter, None),
        (descriptors, None),
        (loop, 4),
        (loop_with_else, None),
        (lambda x: [y * 2 for y in Countdown(x, 2)], None),
        (lambda x: (next(Countdown(x + 1, 2)) * 2, next(Countdown(x, 0), 5)), 2),
        (mapped, None),
        (lambda x: [*map(leaf, [x, x + 1])], None),
        (lambda x: list(map(leaf, [x, x + 1])) + [x * 2], 3),
        (lambda x: tuple(filter(lambda a: leaf(a) is not None, (x, x + 1))), None),
        (lambda x: sorted([x, x + 1, x - 1], key=lambda a: -float(leaf(a).sum())), None),
        (lambda x: max([x, x + 1, x - 1], key=lambda a: float(leaf(a).sum())) * 2, None),
        (lambda x: min(Value(x), Value(x - 1)).v * 2, None),
        (lambda x: functools.reduce(lambda a, b: leaf(a) + b, [x, x + 1, x + 2]) * 2, 3),
        (lambda x: sum([Value(x), Value(x + 1)]).v * 2, 3),
        (lambda x: (sum(map(leaf, [x, x + 1])), sum([0.1] * 10)), 3),
        (lambda x: (any(map(Value, [x, x])), all([Value(x), Value(x)]), x + 1), None),
        (lambda x: Made(x + 1).x + Made(x).y, None),
        (lambda x: OfMeta(x + 1).z + 1, 2),
        (compared, None),
        (wrong, None),
        (refused_to_the_end, None),
        (in_a_handler, None),
    ],
)  # fmt: skip
def test_the_caller_goes_on(program, graphs):
    assert len(check(program, X, graphs=graphs)) == len(check(program, X, calls=2)), "compiles again"


def test_functions_called_below_c_code_are_part_of_their_callers():
    frames = fx.explain(loop)(X).frames
    assert {frame.name for frame in frames} == {"loop"}


def test_tracebacks_do_not_show_what_stands_for_c_code():
    def program(x):
        y = x + 1
        return y, 3 in Wrong(y)

    check(program, X)
