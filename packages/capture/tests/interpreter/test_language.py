# ruff: noqa: F821, F401, PLE0704, ICN001, PTH119, PIE800 - programs with faults
"""Operators, containers, unpacking, f-strings, ``match``, classes, imports."""

import dataclasses
import enum
import inspect

import pytest
from plain import check

EXPRESSIONS = """
1 + 2 * 3 - 4 // 3 % 5 ** 2 | 6 ^ 7 & 8 << 1 >> 1
-1, +True, ~5, not 0
1 < 2 < 3, 1 < 3 < 2, 'a' == 'a' != 'b'
1 in [1, 2], 3 not in (1, 2), 'a' in {'a': 1}
None is None, 1 is not None
[1, 2] + [3], 'ab' * 2, (1,) * 3
[1, 2, 3, 4][1:3], 'hello'[::-1], [1, 2, 3][-1], (1, 2, 3)[:2]
{'a': 1, **{'b': 2}}, [*range(3), *'ab'], {*(1, 2), 3}, (*[1], 2)
1 if [] else 2, [] or 0 or 'x', [1] and {} and 3
f"{1}{'a'!r}{3.14159:.2f}{'x':>{5}}{None}{1!s:>3}{'é'!a}"
f"{[1, 2]=}" if True else ''
(lambda *a: a)(*[1], 2)
[i for i in range(10) if i % 2 if i > 3]
sorted({'b': 1, 'a': 2}.items())
1 + 'a'
'a' - 1
[] < {}
-'a'
None[0]
[1][5]
{}['k']
(1, 2)['a']
len(5)
iter(5)
{[]: 1}
{**5}
[*5]
1 / 0
f"{1:z}"
1 @ 2
2 ** -1, 2.5 // 1, -7 % 3, 7 % -3, divmod(-7, 2)
""".strip().splitlines()


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expressions(text):
    namespace = {}
    exec(f"def program(): return {text}", namespace)
    check(namespace["program"])


def statements(x):
    a = b = [x]
    a += [1]
    b[0] *= 2
    (c, (d, *e)), f = (1, (2, 3, 4)), 5
    del a[1]
    a[0:0] = [7, 8]
    a[len(a) :] = (9,)
    del a[:1]
    x **= 2
    x //= 3
    return a, b, a is b, c, d, e, f, x


def loops(n):
    seen = []
    i = 0
    while i < n:
        i += 1
        if i == 2:
            continue
        if i == 5:
            break
        seen.append(i)
    else:
        seen.append("else")
    for k, v in {"a": 1, "b": 2}.items():
        seen.append((k, v))
    for a, (b, *c) in [(1, (2, 3, 4))]:
        seen.append((a, b, c))
    return seen


@pytest.mark.parametrize("value", [[1, 2], (1, 2, 3), [1], 5, "ab", iter([1, 2]), {1: 2, 3: 4}])
def test_unpacking(value):
    def exact(v):
        a, b = v
        return a, b

    def starred(v):
        a, *b, c = v
        return a, b, c

    check(exact, value)
    check(starred, value)


@pytest.mark.parametrize("value", [0, 7])
def test_statements(value):
    check(statements, value)
    check(loops, value)


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Shape:
    __match_args__ = ("a", "b")

    def __init__(self, a):
        self.a = a

    def __str__(self):  # the test's id
        return f"Shape({self.a})"


class Bad:
    __match_args__ = ["a"]

    def __str__(self):
        return "Bad()"


def matching(subject):
    match subject:
        case 0 | 1:
            return "small"
        case int(n) if n > 100:
            return "big", n
        case float():
            return "float"
        case "yes" | "no" as word:
            return word
        case [1, 2, *rest]:
            return rest
        case (a, [b, c]):
            return a, b, c
        case [x]:
            return "one", x
        case {"k": v, "n": {"m": w}, **rest}:
            return v, w, rest
        case {"k": 1}:
            return "k"
        case Point(0, y=y):
            return "on axis", y
        case Point(x=x, y=y):
            return x, y
        case Shape(a, b):
            return "both"
        case Shape(a):
            return a
        case Bad(1):
            return "bad"
        case str(s) | bytes(s):
            return s
        case None:
            return "none"
        case _:
            return "other"


SUBJECTS = [
    *(0, 1, 50, 500, 1.5, "yes", "maybe", b"x", None, [], [5], [1, 2], [1, 2, 3], (1, [2, 3])),
    *({"k": 1}, {"k": 1, "n": {"m": 2}, "z": 3}, {"n": 1}, Point(0, 1), Point(2, 3), Shape(4)),
    *(Bad(), range(1), object),
]


@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_match(subject):
    check(matching, subject)


def too_many_patterns(subject):
    match subject:
        case Shape(1, 2, 3):
            return 1


def not_a_class(subject):
    thing = 5
    match subject:
        case thing():
            return 1


def duplicate_attribute(subject):
    match subject:
        case Shape(4, a=4):
            return 1


@pytest.mark.parametrize("program", [too_many_patterns, not_a_class, duplicate_attribute])
def test_match_errors(program):
    assert check(program, Shape(4))[1] == "TypeError"


def simple_class():
    class A:
        """Doc."""

        x: int = 1
        y = [x for _ in range(2)] if False else x + 1

        def m(self):
            return self.x

        @property
        def p(self):
            return self.m() + 1

        @classmethod
        def c(cls):
            return cls.__name__

        @staticmethod
        def s(v):
            return v

    a = A()
    names = [name for name in vars(A) if not name.startswith(("__fi", "__st"))]
    return a.m(), a.p, A.c(), A.s(3), A.__doc__, A.__annotations__, A.__qualname__, names


class Attribute(property):
    """As in torch.distributions and SQLAlchemy: a property with further attributes."""

    kind = "attribute"


class Static(staticmethod):
    pass


class Class(classmethod):
    pass


def subclasses_of_descriptors():
    class A:
        def __init__(self, x):
            self.x = x

        p = Attribute(
            lambda self: self.x + 1,
            lambda self, v: setattr(self, "x", v * 2),
            lambda self: vars(self).clear(),
        )
        q = Attribute()
        s = Static(lambda v: v)
        c = Class(lambda cls: cls.__name__)

    a = A(1)
    seen = [a.p, A.p.kind, a.s(3), A.c()]
    a.p = 5
    seen += [a.x, a.p]
    del a.p
    for read in (lambda: a.p, lambda: a.q, lambda: setattr(a, "q", 1)):
        try:
            read()
        except AttributeError as error:
            seen.append(str(error))
    return seen


def inheritance_and_super():
    class Base:
        def __init__(self, x):
            self.x = x

        def f(self):
            return ["base", self.x]

        @classmethod
        def make(cls):
            return cls(1)

    class Left(Base):
        def f(self):
            return ["left", *super().f()]

    class Right(Base):
        def f(self):
            return ["right", *super().f()]

    class Both(Left, Right):
        def __init__(self, x):
            super().__init__(x * 2)

        def f(self):
            return ["both", *super(Both, self).f()]

        @classmethod
        def make(cls):
            return super().make()

    return Both(3).f(), Both.make().x, [c.__name__ for c in Both.__mro__]


def class_cell_and_scope():
    x = "outer"

    class A:
        seen = x
        x = "inner"
        y = x

        def f(self):
            return x, __class__.__name__

    return A.seen, A.x, A.y, A().f()


def metaclass():
    log = []

    class Meta(type):
        @classmethod
        def __prepare__(mcs, name, bases, **kw):
            log.append(("prepare", name, kw))
            return {"injected": 1}

        def __new__(mcs, name, bases, ns, **kw):
            log.append(("new", sorted(k for k in ns if not k.startswith("__"))))
            return super().__new__(mcs, name, bases, ns)

        def __init__(cls, name, bases, ns, **kw):
            super().__init__(name, bases, ns)

        def __call__(cls, *args):
            return ["called", super().__call__(*args).v]

    class A(metaclass=Meta, flag=2):
        def __init__(self, v):
            self.v = v

    class B(A):
        pass

    return log, A(5), B(6), type(B).__name__, A.injected


def hooks():
    class Base:
        registry = []

        def __init_subclass__(cls, tag=None, **kw):
            super().__init_subclass__(**kw)
            Base.registry.append((cls.__name__, tag))

    class Field:
        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, obj, owner):
            return self if obj is None else obj.__dict__.get(self.name, "unset")

        def __set__(self, obj, value):
            obj.__dict__[self.name] = value * 2

    class Child(Base, tag="t"):
        f = Field()

    c = Child()
    before = c.f
    c.f = 4
    return Base.registry, before, c.f, Child.f.name


def generic_bases():
    from typing import Generic, TypeVar

    T = TypeVar("T")

    class Box(Generic[T]):
        def __init__(self, item: T):
            self.item = item

    class IntBox(Box[int]):
        pass

    return IntBox(3).item, [b.__name__ for b in IntBox.__mro__], str(IntBox.__orig_bases__)


def metaclass_conflict():
    class M1(type):
        pass

    class M2(type):
        pass

    class A(metaclass=M1):
        pass

    class B(metaclass=M2):
        pass

    class C(A, B):
        pass


def made_by_libraries():
    @dataclasses.dataclass(frozen=True, order=True)
    class P:
        x: int
        y: list = dataclasses.field(default_factory=list)

    class Color(enum.Enum):
        RED = 1
        BLUE = enum.auto()

        def describe(self):
            return self.name.lower()

    return P(1), P(1) < P(2), Color.BLUE.value, Color(1).describe(), list(Color)


def bad_prepare():
    class Meta(type):
        @classmethod
        def __prepare__(mcs, name, bases):
            return 5

    class A(metaclass=Meta):
        pass


def imports():
    import math
    import os.path
    import xml.etree.ElementTree as tree
    from collections import OrderedDict as OD
    from collections import abc

    return math.pi, os.path.basename("a/b"), tree.__name__, OD.__name__, abc.__name__


def import_errors():
    from math import does_not_exist


CLASSES = [
    simple_class,
    subclasses_of_descriptors,
    inheritance_and_super,
    class_cell_and_scope,
    metaclass,
    hooks,
    generic_bases,
    metaclass_conflict,
    made_by_libraries,
    bad_prepare,
    imports,
    import_errors,
]


@pytest.mark.parametrize("program", CLASSES, ids=lambda program: program.__name__)
def test_classes_and_imports(program):
    import xml.etree.ElementTree

    check(program)


def test_every_program_was_used():
    programs = {v for v in globals().values() if inspect.isfunction(v) and v.__name__[:4] != "test"}
    used = {*CLASSES, check, statements, loops, matching}
    used |= {too_many_patterns, not_a_class, duplicate_attribute}
    assert programs == used
