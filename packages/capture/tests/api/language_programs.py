"""Random programs that use more of the language than ``programs``: descriptors, dataclasses, driven generators, ``match``,
exceptions that cross loops and ``finally``, iterators that are begun and continued, random numbers, breaks anywhere.
"""

from programs import PRELUDE, Writer

MORE = """
import random, dataclasses
from fxstack_capture import graph_break

class Typed:
    def __set_name__(self, owner, name):
        self.key = "_" + name
    def __get__(self, obj, owner=None):
        if obj is None:
            return self
        OUT.write("g") if obj.loud else None
        return obj.__dict__.get(self.key, 0)
    def __set__(self, obj, value):
        obj.__dict__[self.key] = value
        obj.sets += 1

class Record:
    loud = False
    sets = 0
    a = Typed()
    b = Typed()
    def __init__(self, a, loud=False):
        self.loud = loud
        self.a = a
    def __getattr__(self, name):
        if name.startswith("x"):
            return len(name)
        raise AttributeError(name)
    def __eq__(self, other):
        return isinstance(other, Record) and self.sets == other.sets
    __hash__ = None

@dataclasses.dataclass
class Point:
    a: object
    b: list = dataclasses.field(default_factory=list)
    c: int = 3
    def __post_init__(self):
        self.b.append(self.c)

@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    n: int
    m: int = 2

def driven(t, log):
    got = None
    try:
        for i in range(4):
            try:
                got = yield t * i if got is None else got
                log.append(("got", got if isinstance(got, int) else None))
            except KeyError as error:
                log.append(str(error))
                graph_break()
                got = yield t - 1
        return 5
    finally:
        log.append("closed")

def delegating(t, log):
    result = yield from driven(t, log)
    log.append(("result", result))
    yield t + result

def stepping(n, t, log):
    total = t
    for i in range(n):
        try:
            if i == 1:
                continue
            if i == 3:
                break
            total = total + i
            if i == 2:
                graph_break()
        finally:
            log.append(i)
            if n > 4:
                return total * 2
    else:
        log.append("else")
    return total
"""

NUMBERS = (
    *("random.random()", "random.randint(1, 6)", "random.uniform(-1, 2)", "random.gauss(0, 1)"),
    *("random.choice([1, 2, 3])", "random.randrange(5)"),
)


class LanguageWriter(Writer):
    """Statements beside those of ``Writer``; what they bind is used by later ones."""

    def __init__(self, seed, breaks=True):
        super().__init__(seed, breaks)
        self.iterators = []

    def statement(self):
        more = [
            *(self.s_record, self.s_point, self.s_generator, self.s_stepping, self.s_match),
            *(self.s_walrus, self.s_swallow, self.s_chained, self.s_iterator, self.s_loop_over_dict),
            *(self.s_random, self.s_star, self.s_local_class, self.s_sorted, self.s_errors),
        ]
        if self.breaks:
            more += [self.s_user_break] * 3
        if self.r.random() < 0.6:
            self.r.choice(more)()
        else:
            super().statement()

    def block(self, count):
        consumed = list(self.iterators)
        super().block(count)
        self.iterators = consumed

    def put_all(self, *lines):
        for line in lines:
            self.put(line)

    def nested(self, head, count=2):
        self.put(head)
        self.block(self.r.randrange(1, count + 1))

    def maybe_break(self):
        return "graph_break()" if self.breaks and self.r.random() < 0.6 else "pass"

    def s_user_break(self):
        self.put("graph_break()")

    def s_record(self):
        r, name = self.r, self.name("r")
        self.put(f"{name} = Record({self.ten(1)}, loud={r.choice(['True', 'False'])})")
        self.put_all(f"{name}.b = {self.num(1)}", self.maybe_break())
        result = self.name("t")
        self.put(f"{result} = {name}.a + {name}.b + {name}.xyz")
        self.put(f"{r.choice(self.l)}.append((Record.b is Record.__dict__['b'], {name}.sets))")
        self.put(f"STATE['list'].append({name} == Record(1))")
        self.t.append(result)

    def s_point(self):
        name, result = self.name("p"), self.name("t")
        self.put(f"{name} = Point({self.ten(1)}, c={self.num(1)})")
        self.put(self.maybe_break())
        self.put(f"{name} = dataclasses.replace({name}, c={name}.c + 1)")
        self.put(f"{result} = {name}.a * {name}.c + len({name}.b)")
        self.put(f"{self.r.choice(self.l)}.append(Frozen({self.num(2)}) < Frozen({self.num(2)}, 1))")
        self.t.append(result)

    def s_generator(self):
        r, name = self.r, self.name("g")
        maker = r.choice(["driven", "delegating"])
        self.put(f"{name} = {maker}({self.ten(1)}, STATE['list'])")
        result = self.name("t")
        self.put(f"{result} = next({name})")
        for _ in range(r.randrange(1, 4)):
            act = r.choice(
                [
                    f"{result} = {result} + next({name})",
                    f"{result} = {result} + {name}.send({self.num(2)})",
                    f"{result} = {result} * {name}.throw(KeyError('t'))",
                    f"{name}.close()",
                    "graph_break()" if self.breaks else "pass",
                ]
            )
            self.put(act)
        if r.random() < 0.5:
            self.put(f"STATE['list'].append(len(list({name})))")
        self.put(f"{name}.close()")  # what is dropped over a break is closed late
        self.t.append(result)

    def s_stepping(self):
        name = self.name("t")
        self.put(f"{name} = stepping({self.r.randrange(7)}, {self.ten(1)}, STATE['list'])")
        self.t.append(name)

    def s_match(self):
        r = self.r
        subject = r.choice(
            [
                lambda: f"Point({self.ten(2)}, c=2)",
                lambda: f"[1, {self.ten(2)}, 3]",
                lambda: r.choice(self.d),
                lambda: self.num(1),
                lambda: f"({self.num(2)}, 's')",
                lambda: r.choice(self.b),
            ]
        )()
        name = self.name("t")
        self.put(f"match {subject}:")
        self.level += 1
        cases = [
            f"case Point(a=q, c=2): {name} = q + 1",
            f"case [1, *rest]: {name} = x * len(rest)",
            f"case {{'k': q, **rest}}: {name} = y * len(rest)",
            f"case int(q) if q > 0: {name} = x + q",
            f"case (_, str(q)): {name} = y + len(q)",
            f"case Box(value=q) | Record(a=q): {name} = q * 2",
        ]
        r.shuffle(cases)
        self.put_all(*cases[: r.randrange(2, 7)], f"case _: {name} = x - 1")
        self.level -= 1
        self.t.append(name)

    def s_walrus(self):
        name, number = self.name("l"), self.name("n")
        body = f"{number} * i" if self.r.random() < 0.5 else self.ten(2)
        self.put(f"{name} = [{body} for i in range(4) if ({number} := i + {self.num(2)}) > 1]")
        self.put(f"while ({number} := len({name})) > 1:")
        self.put_all(f"    {name}.pop()", f"    {self.maybe_break()}")
        self.l.append(name)
        self.n.append(number)

    def s_swallow(self):
        if self.depth > 2:
            self.s_tensor()
            return
        self.nested(f"with Context(STATE['list'], True), Context(items, {self.cond(2)}):")
        self.level += 1
        self.put(self.r.choice(["raise Oops(2)", "{}['q']", "graph_break()", "[][3]"]))
        self.level -= 1

    def s_chained(self):
        """An exception with a cause or context, looked at afterwards."""
        r, name = self.r, self.name("e")
        again = r.choice(["raise Oops(1) from error", "raise Oops(2) from None", "raise", "[][1]"])
        self.put("try:")
        self.put_all("    try:", f"        {r.choice(['[][9]', 'int(chr(122))', 'raise KeyError(3)'])}")
        self.put_all("    except (IndexError, ValueError, KeyError) as error:")
        self.put_all(f"        {self.maybe_break()}", f"        {again}")
        self.put_all("    finally:", f"        {self.maybe_break()}")
        self.put(f"except Exception as {name}:")
        seen = f"type({name}).__name__, type({name}.__context__).__name__, type({name}.__cause__).__name__"
        self.put(f"    STATE['list'].append(({seen}, {name}.__suppress_context__, str({name})))")

    def s_errors(self):
        """What operations on wrong types say."""
        wrong = ["x + 'a'", "n.foo", "len(n)", "items['k']", "x()", "'a' + n", "[1][n + 99]", "Point()"]
        self.put_all("try:", f"    {self.maybe_break()}", f"    {self.r.choice(wrong)}")
        self.put("except (TypeError, AttributeError, IndexError) as error:")
        self.put("    STATE['list'].append(str(error))")

    def s_iterator(self):
        r = self.r
        if self.iterators and r.random() < 0.7:
            name, value = r.choice(self.iterators), self.name("v")
            self.put(f"{value} = next({name}, None)")
            self.put(f"{r.choice(self.l)}.append({value})")
            return
        name = self.name("it")
        over = r.choice(
            [
                lambda: f"iter({r.choice(self.l)})",
                lambda: f"iter({r.choice(self.d)}.items())",
                lambda: f"enumerate({r.choice(self.l)}, {self.num(2)})",
                lambda: f"zip({r.choice(self.l)}, [{self.ten(2)}, 2, 3])",
                lambda: "reversed([1, 2, x])",
                lambda: f"map(lambda q: (q, {self.num(2)}), {r.choice(self.l)})",
                lambda: f"filter(None, [0, 1, {self.num(2)}, 3])",
                lambda: "itertools.count(n)",
                lambda: f"itertools.islice({r.choice(self.l)}, 2)",
                lambda: f"(q for q in [{self.ten(2)}, {self.num(2)}])",
            ]
        )()
        self.put(f"{name} = {over}")
        self.iterators.append(name)

    def s_loop_over_dict(self):
        if self.depth > 2:
            self.s_tensor()
            return
        key, value = self.name("k"), self.name("w")
        name = self.r.choice(self.d)
        self.nested(f"for {key}, {value} in {name}.items():", 1)
        self.level += 1
        change = self.r.choice([f"{name}[{key}] = {self.num(1)}", "pass", f"{name}['n'] = 1", "break"])
        self.put_all(self.maybe_break(), change)
        self.level -= 1

    def s_random(self):
        r = self.r
        if r.random() < 0.5:
            name = self.name("t")
            self.put(f"{name} = {self.ten(1)} * {r.choice(NUMBERS)} + {r.choice(NUMBERS)}")
            self.t.append(name)
        elif r.random() < 0.5:
            self.nested("if random.random() < 0.5:")
        else:
            self.put(f"STATE['list'].append({r.choice(NUMBERS)})")

    def s_star(self):
        fn, name = self.name("f"), self.name("t")
        self.put(f"def {fn}(a, /, b=2, *c, d={self.num(2)}, **e): return a * b + d + len(c) + len(e)")
        call = self.r.choice(
            [
                lambda: f"{fn}({self.ten(1)}, *(1, 2), d=3)",
                lambda: f"{fn}({self.ten(1)}, **{{'b': {self.num(2)}, 'z': 1}})",
                lambda: f"{fn}(*[{self.ten(1)}])",
                lambda: f"functools.partial({fn}, {self.ten(1)}, d=1)(b=4)",
            ]
        )()
        self.put_all(self.maybe_break(), f"{name} = {call}")
        self.t.append(name)

    def s_local_class(self):
        cls, name = self.name("C"), self.name("t")
        self.put_all(f"class {cls}(Box):", "    total = 7", "    def __call__(self, t, scale=1):")
        self.put_all(
            f"        {self.maybe_break()}", "        return super().__call__(t, scale=2) + self.total"
        )
        self.put_all(f"{name} = {cls}({self.ten(1)})({self.ten(2)})")
        self.t.append(name)

    def s_sorted(self):
        name, key = self.name("l"), self.name("q")
        self.put_all(f"def {key}(v):", f"    {self.maybe_break()}", "    return -v")
        use = self.r.choice(["sorted({}, key={})", "list(map({1}, {0}))", "[max({}, key={})]"])
        self.put(f"{name} = " + use.format(f"[{self.num(1)}, 2, {self.num(2)}]", key))
        self.l.append(name)


def language_program(seed, breaks=True):
    """Source of a module with ``f`` as in ``programs.program``."""
    w = LanguageWriter(seed, breaks)
    w.put("random.seed(n)")
    for _ in range(w.r.randrange(3, 9)):
        w.statement()
    everything = ", ".join([*w.t, *w.n, *w.l, *w.d, *w.b])
    w.put(f"return ({everything}, random.getstate()[1][-1])")
    return PRELUDE + MORE + "\ndef f(x, y, n, items, table, box):\n" + "\n".join(w.lines) + "\n"
