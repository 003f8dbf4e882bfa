"""Small programs over every corner of dispatch, each compared with plain Python."""

import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import io
import itertools
import math
import operator
import threading
import typing
import warnings

import pytest
from oracle import agrees


class Point:
    kind = "point"
    shared = [1, 2]

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __eq__(self, other):
        return isinstance(other, Point) and (self.x, self.y) == (other.x, other.y)

    def __hash__(self):
        return hash((self.x, self.y))

    def __add__(self, other):
        if not isinstance(other, Point):
            return NotImplemented
        return Point(self.x + other.x, self.y + other.y)

    def __radd__(self, other):
        return Point(self.x + other, self.y + other)

    def __lt__(self, other):
        return self.x < other.x

    def __len__(self):
        return 2

    def __getitem__(self, i):
        return (self.x, self.y)[i]

    def __call__(self, k):
        return self.x * k

    @property
    def norm(self):
        return self.x + self.y

    @norm.setter
    def norm(self, value):
        self.x = value

    @classmethod
    def origin(cls):
        return cls(0, 0)

    @staticmethod
    def double(v):
        return 2 * v


class Sub(Point):
    def __init__(self, x, y, z):
        super().__init__(x, y)
        self.z = z

    @property
    def norm(self):
        return super().norm + self.z

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return f"<{name}>"


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = self.b = a


class Typed:
    """A data descriptor in Python."""

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, cls=None):
        return self if obj is None else getattr(obj, self.name, None)

    def __set__(self, obj, value):
        if not isinstance(value, int):
            raise TypeError(f"int wanted, got {value!r}")
        setattr(obj, self.name, value)


class WithDescriptor:
    v = Typed()


class Bag(list):
    def __init__(self, items=(), label=""):
        super().__init__(items)
        self.label = label

    def pop(self):
        return super().pop() * 2


class Table(dict):
    def __missing__(self, key):
        return f"no {key}"


@dataclasses.dataclass
class Config:
    a: int = 1
    b: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    a: int
    b: str = "x"


class Color(enum.Enum):
    RED = 1
    BLUE = 2

    @property
    def low(self):
        return self.name.lower()


class Flags(enum.IntFlag):
    A = 1
    B = 2


Pair = collections.namedtuple("Pair", "left right")  # noqa: PYI024 - the function is what is tested


class Meta(type):
    registry = {}

    def __call__(cls, *args):
        made = super().__call__(*args)
        made.made_by = cls.__name__
        return made

    @property
    def shout(cls):
        return cls.__name__.upper()


class Metered(metaclass=Meta):
    def __init__(self, v):
        self.v = v


class Cached:
    def __init__(self, n):
        self.n = n

    @functools.cached_property
    def square(self):
        return self.n**2

    @functools.lru_cache
    def cube(self):
        return self.n**3


class Manager:
    def __init__(self):
        self.log = []

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, *exc):
        self.log.append(exc[0].__name__ if exc[0] else "out")
        return exc[0] is ValueError


@contextlib.contextmanager
def noting(log):
    log.append("enter")
    try:
        yield 5
    finally:
        log.append("exit")


@functools.singledispatch
def describe(x):
    return "object"


@describe.register
def _(x: int):
    return "int"


def attribute_store(p):
    p.x = 5
    p.new = [p.x]
    del p.y
    return hasattr(p, "y"), p.__dict__


def slots(s):
    s.b = s.a + 1
    s.a = [s.b]
    return s.a, s.b


def list_methods(v):
    v.append(1)
    v.extend([2, 3])
    v.insert(0, 9)
    v.remove(2)
    v.sort(reverse=True)
    v[1:2] = [7, 7]
    del v[-1]
    return v, v.index(7), v.count(7), v.pop(), v + [0], v * 2, v[::-1], 3 in v


def dict_methods(d):
    d["new"] = 1
    d.update(z=2)
    d.setdefault("a", 5)
    return d.get("q"), d.pop("a"), list(d), list(d.items()), len(d), "z" in d, d | {"o": 1}


def dict_order(d):
    v = d.pop("a")
    d["a"] = v
    d["b"] = 3
    return list(d)


def set_methods(s):
    s.add(10)
    s.discard(1)
    return s | {3}, s & {10}, 10 in s, len(s), sorted(s)


def deque_methods(q):
    q.append(4)
    q.appendleft(0)
    q.rotate(1)
    return q.popleft(), list(q), q.maxlen


def counter(words):
    c = collections.Counter(words)
    c["zz"] += 2
    return c.most_common(2), c["missing"], dict(c)


def defaults(items):
    d = collections.defaultdict(list)
    for k, v in items:
        d[k].append(v)
    return dict(d)


def ordered(d):
    d.move_to_end("a")
    d["c"] = 3
    return list(d.items())


def catching(d):
    out = []
    for key in ("a", "zz"):
        try:
            out.append(d[key])
        except KeyError as e:
            out.append(str(e))
        else:
            out.append("fine")
        finally:
            out.append("done")
    return out


def with_manager(m):
    with m as inner:
        inner.log.append(1)
    with m:
        raise ValueError("swallowed")
    with noting(m.log) as five:
        m.log.append(five)
    return m.log


def closures(n):
    total = 0

    def add(k):
        nonlocal total
        total += k
        return total

    for i in range(n):
        add(i)
    return add(0), [f(2) for f in [lambda x, i=i: x * i for i in range(3)]]


def generators(n):
    def squares(k):
        for i in range(k):
            got = yield i * i
            if got:
                yield got

    g = squares(n)
    first = next(g)
    sent = g.send("hello") if n > 1 else None
    return (first, sent, list(g), sum(squares(n)), list(itertools.chain(squares(2), (x for x in range(2)))))


def new_class(n):
    class Local(Point):
        extra = n

        def __repr__(self):
            return f"L{self.x}"

    a = Local(n, 2)
    return (
        a.extra,
        repr(a),
        isinstance(a, Point),
        a == Point(n, 2),
        Local.__name__,
        Local.__mro__[1] is Point,
    )


def metaclass(v):
    m = Metered(v)
    return m.v, m.made_by, Metered.shout, type(Metered).__name__, Meta.registry


def cached(c):
    return c.square, c.square, c.cube(), "square" in c.__dict__


def dataclass_use(c):
    c.b.append(1)
    d = dataclasses.replace(c, a=5)
    return dataclasses.asdict(d), d == c, d, Config(), [f.name for f in dataclasses.fields(c)]


def frozen_use(f):
    try:
        f.a = 3
    except dataclasses.FrozenInstanceError as e:
        caught = str(e)
    return caught, f < Frozen(9), hash(f) == hash(Frozen(f.a, f.b)), sorted([Frozen(2), f])[0].a


def enums(c):
    return (
        c is Color.RED,
        c.name,
        c.low,
        Color(2),
        Color["BLUE"],
        [m.value for m in Color],
        Flags.A | Flags.B,
        Flags.A in Flags.B,
    )


def named(p):
    left, right = p
    return p.left, p._replace(right=9), p._asdict(), Pair(1, 2) == (1, 2), left, p[1], p._fields


def bag(b):
    b.append(2)
    b.append(3)
    b.label += "!"
    return b, b.pop(), len(b), b.label, sum(b), b[0]


def strings(s):
    return (
        f"{s!r:>10}|{len(s):03d}",
        s.upper().split("L"),
        "{0}-{k}".format(s, k=1),
        s % (),
        s[::-1],
        ",".join(c for c in s),
        "%s" % [s],
    )


def functional(xs):
    return (
        functools.reduce(lambda a, b: a + b, xs, 10),
        list(map(lambda x, y: x * y, xs, xs)),
        list(filter(lambda x: x > 1, xs)),
        sorted(xs, key=lambda v: -v),
        max(xs, key=lambda v: -v),
        functools.partial(operator.sub, 10)(3),
        list(itertools.accumulate(xs)),
        [list(g) for _, g in itertools.groupby(xs, key=lambda v: v % 2)],
        list(zip(xs, reversed(xs))),
        any(x > 2 for x in xs),
        math.prod(xs),
    )


def unpacking(xs):
    a, *b = xs
    [c, d], e = (1, 2), 3
    return a, b, c, d, e, [*xs, *b], {"k": a}, (lambda *p, k=1, **kw: (p, k, kw))(*xs, k=2, z=3)


def matching(v):
    match v:
        case {"a": [first, *rest]}:
            return "mapping", first, rest
        case Point(x=0):
            return "origin"
        case [1, 2] | (3, 4):
            return "pair"
        case str() as s if s:
            return "text " + s
        case _:
            return "other"


def copies(v):
    a, b = copy.copy(v), copy.deepcopy(v)
    return a, b, a is v, b is v


def attributes(p):
    setattr(p, "dyn", 4)
    return (
        getattr(p, "dyn"),
        getattr(p, "none", 7),
        hasattr(p, "kind"),
        vars(p),
        operator.attrgetter("x")(p),
    )


def class_attributes(p):
    return (
        p.kind,
        Point.kind,
        type(p).__name__,
        p.__class__ is Point,
        p.shared,
        Point.__module__ == __name__,
        p.__doc__,
    )


def operators(p):
    return (
        p + p,
        1 + p,
        p == Point(1, 2),
        p != p,
        p < Point(3, 0),
        len(p),
        p[0],
        list(p),
        bool(p),
        p(3),
        -p.x,
        p.x**2 // 3 % 2,
    )


def methods(p):
    m = p.__len__
    f = Point.double
    return (m(), f(4), p.origin(), Point.origin().x, p.norm, Point.norm.fget(p), [type(x) for x in (m, f)])


def setter(p):
    p.norm = 11
    return p.x


def errors(v):
    return v.missing


def raising(v):
    raise ValueError("bad", v)


def error_context(v):
    try:
        try:
            v[10]
        except IndexError as e:
            raise RuntimeError("outer") from e
    except RuntimeError as e:
        return str(e), type(e.__cause__), str(e.__cause__)


def bad_calls(v):
    out = []
    for f in (
        lambda: len(3),
        lambda: v(),
        lambda: "a" + 1,
        lambda: [].foo,
        lambda: {}["x"],
        lambda: int("z"),
        lambda: next(iter([])),
        lambda: (lambda a: a)(),
        lambda: list((1,))[5],
        lambda: Point(1),
    ):
        try:
            f()
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out


def enum_class(v):
    class Shade(enum.Enum):
        DARK = v
        LIGHT = v + 1

        @classmethod
        def pick(cls):
            return cls.DARK

    return (Shade.pick().name, Shade(v + 1).value, [s.name for s in Shade], Shade.DARK is Shade.pick())


def buffers(v):
    out = io.StringIO()
    print("a", v, file=out)
    out.write("b")
    return out.getvalue()


def locked(v):
    lock = threading.Lock()
    with lock, threading.RLock():
        return v + 1


def quiet(v):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("nobody sees this")
    return v


def lazily_chained(v):
    chained = itertools.chain(v, 5)
    first = next(chained)
    try:
        list(chained)
    except TypeError as e:
        return first, str(e)


class Odd(dict):
    __setattr__ = dict.__setitem__


def odd_store(d):
    d.x = 5
    return d["x"], list(d)


class Funny:
    @classmethod
    def __new__(cls, other):
        return other.__name__


def funny(v):
    return Funny()


def wrong_super(n):
    try:
        super(Point, n)
    except TypeError as error:
        return str(error), n + 1


PROGRAMS = [
    (enum_class, 1),
    (buffers, 1),
    (locked, 1),
    (quiet, 1),
    (lazily_chained, [1]),
    (odd_store, Odd(a=1)),
    (funny, 1),
    (attribute_store, Point(1, 2)),
    (slots, Slotted([1].__len__())),
    (list_methods, [5, 2, 8]),
    (dict_methods, {"a": 1, "b": [2]}),
    (dict_order, {"a": 1, "b": 2, "c": 3}),
    (set_methods, {1, 2}),
    (deque_methods, collections.deque([1, 2, 3], maxlen=4)),
    (counter, ["a", "b", "a"]),
    (defaults, [("a", 1), ("b", 2), ("a", 3)]),
    (ordered, collections.OrderedDict(a=1, b=2)),
    (catching, {"a": 1}),
    (with_manager, Manager()),
    (closures, 4),
    (generators, 3),
    (new_class, 3),
    (metaclass, 3),
    (cached, Cached(3)),
    (dataclass_use, Config(2, [0])),
    (frozen_use, Frozen(3)),
    (enums, Color.RED),
    (named, Pair(1, [2])),
    (bag, Bag([1], "l")),
    (strings, "hello"),
    (functional, [3, 1, 2]),
    (unpacking, [1, 2, 3]),
    (matching, {"a": [1, 2, 3]}),
    (matching, Point(0, 1)),
    (matching, [1, 2]),
    (matching, "xyz"),
    (matching, 5),
    (copies, [Point(1, 2), {"a": [1]}, Config()]),
    (attributes, Point(1, 2)),
    (class_attributes, Point(1, 2)),
    (operators, Point(1, 2)),
    (methods, Point(1, 2)),
    (setter, Point(1, 2)),
    (errors, Point(1, 2)),
    (errors, Slotted(1)),
    (errors, 5),
    (raising, 5),
    (error_context, [1]),
    (bad_calls, 5),
    (wrong_super, 5),
]


@pytest.mark.parametrize(("program", "arg"), PROGRAMS, ids=lambda v: getattr(v, "__name__", ""))
def test_program(program, arg):
    agrees(program, arg)


def test_sub():
    def f(s):
        return s.norm, s.anything, hasattr(s, "_no"), isinstance(s, Point), super(Sub, s).norm, s.z

    agrees(f, Sub(1, 2, 3))


def test_descriptor():
    def f(w):
        w.v = 3
        first = w.v
        try:
            w.v = "x"
        except TypeError as e:
            return first, str(e), w.__dict__

    agrees(f, WithDescriptor())


class Doubling:
    """Takes stores, and leaves loads to the dictionary."""

    def __set__(self, obj, value):
        obj.__dict__["v"] += value * 2


class WithDoubling:
    v = Doubling()

    def __init__(self):
        self.__dict__["v"] = 1


def test_descriptor_for_stores_only():
    def f(w):
        w.v = 3
        return w.v, w.__dict__, WithDoubling().v

    agrees(f, WithDoubling())


def test_copy_of_a_class_whose_slots_nobody_has_listed():
    agrees(lambda v: copy.deepcopy(collections.OrderedDict(a=v, b=[v])), [1])


@pytest.mark.parametrize("made", [list, type("Grown", (list,), {})])
def test_a_list_extended_by_itself_under_another_name(made):
    items = made([1, 2])
    agrees(lambda a, b: (a.extend(b), len(b))[1], items, items)


class Widened(list):
    def append(self, value):
        super().append(value * 2)


def test_bound_method_that_the_class_hides():
    append = super(Widened, Widened([1])).append
    agrees(lambda append: (append(3), len(append.__self__) > 1, append.__self__[-1]), append)


def test_annotations_that_are_made_inside():
    def f(v):
        def inner(x: typing.Optional[Point], y: typing.List[int] = v) -> typing.Union[int, Point]:
            return y

        return inner(1), inner.__annotations__, typing.Dict[str, typing.Any]

    agrees(f, [1])


def test_table():
    def f(t):
        return t["x"], t["y"], t.get("y"), len(t)

    agrees(f, Table(x=1))


def test_singledispatch():
    agrees(lambda v: (describe(v), describe("s")), 1)


def test_aliases_are_kept():
    def f(a, b):
        a.append(1)
        b[0].append(2)
        return a is b[0], b[0] is b[1], b

    shared = [0]
    agrees(f, shared, [shared, shared])


def test_cyclic_structures():
    def f(a):
        a[0].append(3)
        return len(a), a[0] is a

    loop = []
    loop.append(loop)
    agrees(f, loop)
