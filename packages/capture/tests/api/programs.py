"""Random Python programs over tensors and containers, for comparing compiled with plain execution.

``program(seed)`` is the source of a module with a function ``f(x, y, n, items, table, box)``; the classes and
state that it uses are in ``PRELUDE``. Everything it does is deterministic.
"""

import random

PRELUDE = """
import torch, io, functools, itertools, collections
OUT = io.StringIO()
STATE = {"calls": 0, "list": []}
COUNT = 0

class Box:
    total = 0
    def __init__(self, value):
        self.value = value
        self.log = []
    def add(self, t):
        self.value = self.value + t
        self.log.append("add")
        return self
    def __add__(self, other):
        return Box(self.value + (other.value if isinstance(other, Box) else other))
    def __len__(self):
        return len(self.log)
    @property
    def double(self):
        return self.value * 2
    def __call__(self, t, scale=1):
        return self.value * scale + t

class Small(Box):
    __slots__ = ("extra",)
    def add(self, t):
        super().add(t)
        self.extra = len(self.log)
        return self

class Context:
    def __init__(self, log, swallow=False):
        self.log, self.swallow = log, swallow
    def __enter__(self):
        self.log.append("in")
        return self
    def __exit__(self, kind, value, trace):
        self.log.append(kind.__name__ if kind else "out")
        return self.swallow

class Oops(Exception):
    def __init__(self, code, extra=None):
        super().__init__(code)
        self.extra = extra

Pair = collections.namedtuple("Pair", "a b")

def helper(t, k=2, *rest, flag=False):
    if flag:
        t = t - 1
    for r in rest:
        t = t + r
    return t * k

def noisy(t, what="n"):
    t = t + 1
    OUT.write(what)
    return t * 2

def counted():
    global COUNT
    COUNT += 1
    return COUNT

def gen(n, t):
    for i in range(n):
        got = yield t + i
        if got:
            yield got
"""


class Writer:
    def __init__(self, seed, breaks=True):
        self.r = random.Random(seed)
        self.lines = []
        self.level = 1
        self.fresh = 0
        self.breaks = breaks
        self.depth = 0
        self.in_loop = False
        self.t, self.n, self.l, self.d, self.b = ["x", "y"], ["n"], ["items"], ["table"], ["box"]

    def put(self, line):
        self.lines.append("    " * self.level + line)

    def name(self, kind):
        self.fresh += 1
        return f"{kind}{self.fresh}"

    # expressions

    def num(self, d=0):
        r = self.r
        c = r.randrange(9 if d < 2 else 3)
        if c == 0:
            return str(r.randrange(-3, 5))
        if c in (1, 2):
            return r.choice(self.n)
        if c == 3:
            return f"({self.num(d + 1)} {r.choice('+-*')} {self.num(d + 1)})"
        if c == 4:
            return f"len({r.choice(self.l + self.d)})"
        if c == 5:
            return f"{self.ten(2)}.shape[0]"
        if c == 6:
            return f"({self.num(d + 1)} if {self.cond(d + 1)} else {self.num(d + 1)})"
        if c == 7:
            return f"min(max({self.num(d + 1)}, -20), 20)"
        key = r.choice(["0", "1", repr("k"), repr("z")])
        looked_up = f"{r.choice(self.d)}.get({key}, {self.num(d + 1)})"
        return f"{looked_up} if False else {self.num(d + 1)}"

    def ten(self, d=0):
        r = self.r
        if d > 2:
            return r.choice(self.t)
        c = r.randrange(12)
        a = lambda: self.ten(d + 1)
        if c < 3:
            return r.choice(self.t)
        return [
            lambda: f"({a()} + {a()})",
            lambda: f"({a()} * {self.num(1)})",
            lambda: f"torch.{r.choice(['sin', 'relu', 'tanh'])}({a()})",
            lambda: f"({a()} - {a()}.{r.choice(['mean', 'sum'])}())",
            lambda: f"helper({a()}, {self.num(2)}, {a()}, flag={self.cond(2)})",
            lambda: f"{r.choice(self.b)}({a()}, scale={self.num(2)})",
            lambda: f"{r.choice(self.b)}.double",
            lambda: f"(lambda q, w={self.num(2)}: q * w)({a()})",
            lambda: f"torch.stack([{a()}, {a()}]).{r.choice(['sum(0)', 'mean(dim=0)'])}",
        ][c - 3]()

    def cond(self, d=0):
        r = self.r
        c = r.randrange(6)
        if c == 0:
            return f"{self.num(d + 1)} {r.choice(['<', '>', '==', '!=', '<=', '>='])} {self.num(d + 1)}"
        if c == 1:
            return f"isinstance({r.choice(self.b)}, {r.choice(['Box', 'Small', 'dict'])})"
        if c == 2:
            return r.choice(["True", "False"])
        if c == 3:
            return f"{r.choice(self.l)} is {r.choice(self.l)}"
        if c == 4:
            return f"(not {self.num(d + 1)} or {self.num(d + 1)} in (1, 2, 3))"
        return f"{r.choice([repr('k'), '1'])} in {r.choice(self.d)}"

    def any(self):
        r = self.r
        return r.choice(
            [
                self.ten,
                self.ten,
                self.num,
                lambda: r.choice(self.l),
                lambda: r.choice(self.d),
                lambda: r.choice(self.b),
                lambda: f"({self.num()}, {self.ten(1)})",
                lambda: f"[{self.ten(1)}]",
                lambda: f"Pair({self.ten(1)}, {self.num(1)})",
                lambda: "'s'",
            ]
        )()

    # statements

    def block(self, count):
        self.level += 1
        saved = [list(v) for v in (self.t, self.n, self.l, self.d, self.b)]
        self.depth += 1
        for _ in range(count):
            self.statement()
        self.depth -= 1
        self.t, self.n, self.l, self.d, self.b = saved
        self.level -= 1

    def statement(self):
        r = self.r
        simple = [
            self.s_tensor,
            self.s_tensor,
            self.s_num,
            self.s_list,
            self.s_dict,
            self.s_box,
            self.s_inplace,
            self.s_new,
            self.s_state,
            self.s_closure,
            self.s_gen,
            self.s_comp,
            self.s_unpack,
            self.s_raise,
        ]
        if self.breaks:
            simple += [self.s_break, self.s_break]
        nested = [
            self.s_if,
            self.s_for,
            self.s_try,
            self.s_with,
            self.s_while,
            self.s_tensor_if if self.breaks else self.s_if,
        ]
        pool = simple + (nested * 2 if self.depth < 3 else [])
        r.choice(pool)()

    def s_tensor(self):
        value = self.ten()
        if self.r.random() < 0.5:
            self.put(f"{self.r.choice(self.t)} = {value}")
        else:
            name = self.name("t")
            self.put(f"{name} = {value}")
            self.t.append(name)

    def s_num(self):
        value = self.num()
        if self.r.random() < 0.5 and len(self.n) > 1:
            self.put(f"{self.r.choice(self.n)} = min(max({value}, -50), 50)")
        else:
            name = self.name("n")
            self.put(f"{name} = min(max({value}, -50), 50)")
            self.n.append(name)

    def s_list(self):
        r, name = self.r, self.r.choice(self.l)
        self.put(
            r.choice(
                [
                    lambda: f"{name}.append({self.any()})",
                    lambda: f"{name}.insert(0, {self.any()})",
                    lambda: f"{name}.extend([{self.any()}, {self.num()}])",
                    lambda: f"{name}.pop()",
                    lambda: f"{name}[{r.choice(['0', '-1', '1'])}] = {self.any()}",
                    lambda: f"{name}[:] = {name}[::-1]",
                    lambda: f"del {name}[:1]",
                    lambda: f"{name} += [{self.num()}]" if name != "items" else f"{name}.append(0)",
                ]
            )()
        )

    def s_dict(self):
        r, name = self.r, self.r.choice(self.d)
        key = r.choice(["'k'", "1", "'z'", "(1, 2)", self.num(2)])
        self.put(
            r.choice(
                [
                    lambda: f"{name}[{key}] = {self.any()}",
                    lambda: f"{name}.setdefault({key}, {self.any()})",
                    lambda: f"{name}.pop({key}, None)",
                    lambda: f"{name}.update(q={self.any()})",
                    lambda: f"del {name}[{key}]",
                ]
            )()
        )

    def s_box(self):
        r, name = self.r, self.r.choice(self.b)
        self.put(
            r.choice(
                [
                    lambda: f"{name}.add({self.ten(1)})",
                    lambda: f"{name}.value = {self.ten(1)}",
                    lambda: f"{name}.note = {self.any()}",
                    lambda: f"{name}.log.append({self.num()})",
                    lambda: "Box.total += 1",
                    lambda: f"setattr({name}, 'other', {self.any()})",
                ]
            )()
        )

    def s_inplace(self):
        name = self.r.choice(self.t)
        self.put(
            self.r.choice(
                [
                    f"{name}.add_(1)",
                    f"{name}.mul_({self.num(2)})",
                    f"{name}[0] = {self.num(2)}",
                    f"{name} += {self.ten(2)}",
                ]
            )
        )

    def s_new(self):
        r = self.r
        c = r.randrange(5)
        if c == 0:
            name = self.name("l")
            self.put(
                f"{name} = [{self.any()}, {self.any()}]"
                if r.random() < 0.6
                else f"{name} = {r.choice(self.l)}"
            )
            self.l.append(name)
        elif c == 1:
            name = self.name("d")
            self.put(
                f"{name} = {{'k': {self.any()}, 1: {self.any()}}}"
                if r.random() < 0.6
                else f"{name} = dict({r.choice(self.d)})"
            )
            self.d.append(name)
        else:
            name = self.name("b")
            self.put(
                f"{name} = {r.choice(['Box', 'Small'])}({self.ten(1)})"
                if r.random() < 0.7
                else f"{name} = {r.choice(self.b)} + {self.ten(1)}"
            )
            self.b.append(name)

    def s_state(self):
        self.put(
            self.r.choice(
                [
                    "STATE['calls'] += 1",
                    f"STATE['list'].append({self.num()})",
                    f"STATE['last'] = {self.any()}",
                    "counted()",
                    "STATE.pop('last', None)",
                ]
            )
        )

    def s_closure(self):
        fn, name = self.name("g"), self.name("c")
        self.put(f"{name} = {self.num(1)}")
        self.put(f"def {fn}(v, k={self.num(2)}):")
        self.put(f"    nonlocal {name}")
        self.put(f"    {name} = {name} + 1")
        self.put(f"    return v * k + {name}")
        result = self.name("t")
        self.put(f"{result} = {fn}({self.ten(1)}) + {fn}({self.ten(2)}, k=1)")
        self.t.append(result)
        if self.r.random() < 0.3:
            self.put(f"{self.r.choice(self.l)}.append({name})")

    def s_gen(self):
        name = self.name("t")
        self.put(f"{name} = sum(gen({self.r.randrange(1, 4)}, {self.ten(1)}))")
        self.t.append(name)

    def s_comp(self):
        r, name = self.r, self.name("l")
        self.put(
            r.choice(
                [
                    lambda: f"{name} = [{self.ten(2)} * i for i in range({r.randrange(4)})]",
                    lambda: f"{name} = [i for i in {r.choice(self.l)}]",
                    lambda: f"{name} = list(map(lambda q: q, {r.choice(self.l)}))",
                    lambda: f"{name} = [k for k, v in {r.choice(self.d)}.items()]",
                    lambda: f"{name} = list(enumerate({r.choice(self.l)}))",
                    lambda: f"{name} = sorted([{self.num()}, {self.num()}, 1], key=lambda v: -v)",
                    lambda: f"{name} = list(zip({r.choice(self.l)}, range(2)))",
                ]
            )()
        )
        self.l.append(name)

    def s_unpack(self):
        a, b = self.name("t"), self.name("n")
        self.put(f"{a}, ({b}, *_) = {self.ten(1)}, ({self.num()}, {self.num()}, 3)")
        self.t.append(a)
        self.n.append(b)

    def s_raise(self):
        if self.depth and self.r.random() < 0.7:
            self.put(
                self.r.choice(
                    [
                        "raise ValueError('v')",
                        "raise Oops(3, extra=[1])",
                        f"if {self.cond()}: raise KeyError('r')",
                    ]
                )
            )
        else:
            self.s_tensor()

    def s_break(self):
        r = self.r
        name = self.name("t")
        self.put(
            r.choice(
                [
                    lambda: "OUT.write('w')",
                    lambda: f"{name} = noisy({self.ten(1)})",
                    lambda: f"{name} = helper(noisy({self.ten(2)}), {self.num(2)}, {self.ten(2)})",
                    lambda: f"{name} = {self.ten(2)} * float({self.ten(1)}.sum() > 0)",
                    lambda: f"{name} = {self.ten(2)} + int({self.ten(1)}.abs().sum().item() > 1)",
                    lambda: f"{name} = [{self.ten(2)}, noisy({self.ten(2)})][{r.choice(['0', '1'])}]",
                    lambda: f"{name} = {r.choice(self.b)}.add(noisy({self.ten(2)})).value",
                ]
            )()
        )
        if not self.lines[-1].lstrip().startswith("OUT"):
            self.t.append(name)

    def s_if(self):
        self.put(f"if {self.cond()}:")
        self.block(self.r.randrange(1, 4))
        if self.r.random() < 0.5:
            self.put("else:")
            self.block(self.r.randrange(1, 3))

    def s_tensor_if(self):
        self.put(f"if {self.ten(1)}.sum() {self.r.choice('<>')} {self.r.randrange(-2, 3)}:")
        self.block(self.r.randrange(1, 3))
        if self.r.random() < 0.5:
            self.put("else:")
            self.block(self.r.randrange(1, 3))

    def s_for(self):
        r = self.r
        var = self.name("i")
        over = r.choice(
            [
                lambda: (f"range({r.randrange(1, 4)})", "n"),
                lambda: (f"[{self.ten(1)}, {self.ten(1)}]", "t"),
                lambda: (f"list({r.choice(self.l)})[:3]", None),
                lambda: (f"gen(2, {self.ten(2)})", "t"),
                lambda: (f"reversed([1, 2, {self.num(2)}])", "n"),
            ]
        )()
        self.put(f"for {var} in {over[0]}:")
        saved = [list(v) for v in (self.t, self.n)]
        if over[1] == "n":
            self.n.append(var)
        elif over[1] == "t":
            self.t.append(var)
        outer, self.in_loop = self.in_loop, True
        self.block(r.randrange(1, 4))
        self.in_loop = outer
        self.t, self.n = saved
        if r.random() < 0.3:
            self.level += 1
            self.put(f"if {self.cond()}: {r.choice(['break', 'continue'])}")
            self.level -= 1
        if r.random() < 0.2:
            self.put("else:")
            self.block(1)

    def s_while(self):
        name = self.name("w")
        self.put(f"{name} = {self.r.randrange(1, 4)}")
        self.put(f"while {name} > 0:")
        self.level += 1
        self.put(f"{name} -= 1")
        self.level -= 1
        self.block(self.r.randrange(1, 3))

    def s_try(self):
        r = self.r
        self.put("try:")
        self.block(r.randrange(1, 4))
        if r.random() < 0.3:
            self.level += 1
            self.put(
                r.choice(
                    [
                        "int('x')",
                        "raise ValueError('t')",
                        "[][1]",
                        "{}['k']",
                        "raise Oops(1, extra=2)",
                        "torch.ones(2) + torch.ones(5)",
                    ]
                )
            )
            self.level -= 1
        kinds = r.choice(["(ValueError, KeyError)", "Exception", "(IndexError, Oops)", "KeyError"])
        name = self.name("e")
        finish = r.random() < 0.4
        self.put(f"except {kinds} as {name}:")
        self.level += 1
        self.put(f"STATE['list'].append(type({name}).__name__)")
        self.level -= 1
        self.block(r.randrange(1, 3))
        if r.random() < 0.15:
            self.level += 1
            self.put("raise")
            self.level -= 1
        if r.random() < 0.2:
            self.put("else:")
            self.block(1)
        if finish:
            self.put("finally:")
            self.block(r.randrange(1, 2))

    def s_with(self):
        r = self.r
        context = r.choice(
            ["torch.no_grad()", f"Context(STATE['list'], {r.choice(['True', 'False'])})", "Context(items)"]
        )
        self.put(f"with {context}:")
        self.block(r.randrange(1, 4))


def program(seed, breaks=True, size=None):
    """Source of the function; ``breaks=False``: nothing that ends a graph."""
    w = Writer(seed, breaks)
    for _ in range(size or w.r.randrange(4, 14)):
        w.statement()
    everything = ", ".join([*w.t, *w.n, *w.l, *w.d, *w.b])
    w.put(f"return ({everything},)")
    return PRELUDE + "\ndef f(x, y, n, items, table, box):\n" + "\n".join(w.lines) + "\n"
