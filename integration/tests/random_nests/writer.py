"""Draw a random program: ``program(seed)`` is always the same one.

A variable has a kind, by its shape: ``M`` (rows by 3), ``V`` (3 numbers), ``S`` (one number), ``I`` (one integer, a
tensor). Each statement keeps the kind. Functions read the variables of outer functions, and write their own.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from random_nests.tree import Function, Statement

MAX_DEPTH = 4
FEATURES = ("closures", "pytrees", "writes", "random", "numbers", "sizes", "vmap", "grad")
PROBABILITY = (1.0, 0.5, 0.5, 0.5)
"""How often a statement is an operator, by the depth of its function."""
PLAIN_PREDICATES = ("s.k > 2", "x.shape[0] > 4")
ELEMENT = {"M": "V", "V": "S"}
"""The kind of one element along the first dimension."""
OF_ELEMENTS = ("map", "associative_scan", "vmap", "size")
"""Operators for values that have elements."""
NESTS: dict[str, tuple[str, tuple[str, str]]] = {
    "tuple": ("({0}, {1})", ("{0}[0]", "{0}[1]")),
    "list": ("[{0}, {1}]", ("{0}[0]", "{0}[1]")),
    "dict": ("{{'a': {0}, 'b': {1}}}", ("{0}['a']", "{0}['b']")),
    "deep": ("{{'x': [{0}, ({1},)]}}", ("{0}['x'][0]", "{0}['x'][1][0]")),
    "named": ("Pair({0}, {1})", ("{0}.left", "{0}.right")),
}
"""How two values are nested: the text that makes the structure, and the two that read it."""


@dataclass(frozen=True, slots=True)
class Program:
    """A function of ``ops`` (the operators), ``s`` (the state), ``x`` (M) and ``y`` (V), and how it is called."""

    function: Function
    features: frozenset[str]
    dynamic: bool
    gradients: bool

    def source(self) -> str:
        return self.function.text()


@dataclass(slots=True)
class Scope:
    """What a function that is being written may use."""

    depth: int
    own: dict[str, str]
    """The variables of the function, which its statements assign, by name, each with its kind."""
    outer: dict[str, str] = field(default_factory=dict)
    numbers: list[str] = field(default_factory=lambda: ["s.k", "x.shape[0]"])
    """Python integers."""
    quiet: bool = False
    """Whether random numbers and writes to the outside are excluded: plain Python or eager would do something else."""
    batched: bool = False
    """Whether ``vmap`` is around the function. Values can then differ by example, so Python numbers must not depend on
    them, and a value without examples cannot hold one with examples."""


class Writer:
    """Writes one program with ``features``."""

    def __init__(self, rng: random.Random, features: frozenset[str]) -> None:
        self.rng = rng
        self.features = features
        self.count = 0
        self.operators: dict[str, Callable[[Scope, str, str], Statement]] = {
            "cond": self.cond,
            "while_loop": self.while_loop,
            "map": self.map,
            "scan": self.scan,
            "associative_scan": self.associative_scan,
            "wrapped": self.wrapped,
            **({"vmap": self.vmap} if "vmap" in features else {}),
            **({"grad": self.grad} if "grad" in features else {}),
            **({"number": self.number} if "numbers" in features else {}),
            **({"size": self.size} if "sizes" in features else {}),
        }

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    # --- expressions ------------------------------------------------------------------------------

    def read(self, scope: Scope, kind: str, *, plain: bool = False) -> str:
        """Some variable, converted to ``kind`` or to something that broadcasts to it without a change of its shape."""
        outer = scope.outer if "closures" in self.features and not plain else {}
        found = {**outer, **scope.own}
        name = self.rng.choice(list(found))
        return _converted(name, found[name], kind)

    def value(self, scope: Scope, kind: str) -> str:
        """A variable of exactly ``kind``, or something computed that has it."""
        found = [name for name, of in {**scope.outer, **scope.own}.items() if of == kind]
        own = [name for name in found if name in scope.own]
        if own and ("closures" not in self.features or self.rng.random() < 0.6):
            return self.rng.choice(own)
        return self.rng.choice(found or [{"M": "x", "V": "y", "S": "y.sum()", "I": "s.one"}[kind]])

    def expression(self, scope: Scope, name: str, kind: str) -> str:
        """A new value of a variable of ``kind``."""
        if kind == "I":
            return self.rng.choice([f"{name} + 1", f"({name} * 2) % 5", f"{name} + s.k"])
        other = self.read(scope, kind)
        choices = [
            f"({name} * 0.5 + {other}).sin()",
            f"torch.tanh({name} - {other})",
            f"{name} * 0.5 + {other} * 0.25",
            f"({name} + {self.rng.choice(scope.numbers)}).cos()",
            f"torch.where({name} > 0.1, {name} * 0.5, {other} * 0.3)",
        ]
        if kind != "S":
            choices.append(f"{name}.softmax(-1) + {other} * 0.1")
        if kind == "V":
            choices.append(f"s.model({name}).tanh()")
            choices.append(f"{name} + s.table[{self.value(scope, 'I')} % 8]")
        if "random" in self.features and not scope.quiet:
            choices += [f"{name} + torch.rand_like({name})", f"F.dropout({name}, 0.5)"]
        return self.rng.choice(choices)

    def predicate(self, scope: Scope, *, plain: bool = False) -> str:
        """A condition. ``plain``: one that depends on no tensor."""
        choices = [
            f"{self.value(scope, self.rng.choice('MV'))}.sum() > {self.rng.choice([-1, 0, 1])}",
            f"{self.value(scope, 'I')} > 1",
            f"{self.value(scope, 'S')} < 0.2",
            *PLAIN_PREDICATES,
        ]
        chosen = self.rng.choice(choices)
        return chosen if chosen in PLAIN_PREDICATES or not plain else PLAIN_PREDICATES[0]

    # --- functions --------------------------------------------------------------------------------

    def function(
        self,
        scope: Scope,
        takes: str,
        *,
        gives: str | None = None,
        quiet: bool = False,
        batched: bool = False,
        size: int = 2,
    ) -> tuple[Function, list[str]]:
        """A function of variables of the kinds ``takes`` with statements; returns it with the names of its variables.

        ``gives``: the text of its result, a format of the names; the first variable by default.
        """
        names = [self.fresh(kind.lower()) for kind in takes]
        inner = Scope(
            scope.depth + 1,
            dict(zip(names, takes, strict=True)),
            {**scope.outer, **scope.own},
            scope.numbers,
            scope.quiet or quiet,
            scope.batched or batched,
        )
        statements = self.statements(inner, self.rng.randint(1, size))
        result = (gives or "{0} * 1").format(*names)
        return Function(self.fresh("f"), ", ".join(names), [], statements, result), names

    def statements(self, scope: Scope, count: int) -> list[Statement]:
        return [self.statement(scope) for _ in range(count)]

    def statement(self, scope: Scope) -> Statement:
        name = self.rng.choice([name for name, kind in scope.own.items() if scope.depth or kind != "I"])
        kind = scope.own[name]
        if kind != "I" and scope.depth < MAX_DEPTH and self.rng.random() < PROBABILITY[scope.depth]:
            possible = [name for name in self.operators if kind in ELEMENT or name not in OF_ELEMENTS]
            return self.operators[self.rng.choice(possible)](scope, name, kind)
        draw = self.rng.random()
        if draw < 0.15 and kind != "I":
            read = self.read(scope, kind)
            added = name if scope.batched else read
            change = self.rng.choice([f"mul_(0.5).add_({added})", "sin_()", "clamp_(-2, 2)"])
            return Statement(f"{name} = {name}.clone().{change}")
        if draw < 0.35 and "writes" in self.features and not scope.quiet:
            value = self.read(scope, "V")
            return Statement(
                self.rng.choice(
                    [
                        f"s.buf.add_(torch.as_tensor({value}).detach())",
                        f"s.cache[s.k] = torch.as_tensor({value}).detach()",
                        "s.one.add_(1)",
                    ]
                )
            )
        return Statement(f"{name} = {self.expression(scope, name, kind)}")

    # --- operators: each returns a statement that assigns ``name`` of ``kind`` ------------------

    def nested(self, fn: Function, first: int = 0) -> tuple[str, Callable[[str, str], str]]:
        """Let ``fn`` take its parameters ``first`` and ``first + 1`` as one structure; returns how to make one."""
        parameters = fn.parameters.split(", ")
        make, take = NESTS[self.rng.choice(list(NESTS)) if "pytrees" in self.features else "tuple"]
        q = self.fresh("q")
        reads = [f"{parameters[first + i]} = {take[i].format(q)}" for i in (0, 1)]
        fn.unpacking[:0] = reads
        parameters[first : first + 2] = [q]
        fn.parameters = ", ".join(parameters)
        return make, lambda a, b: make.format(a, b)

    def cond(self, scope: Scope, name: str, kind: str) -> Statement:
        if "pytrees" in self.features and self.rng.random() < 0.6:
            other = self.rng.choice("MVSI")
            make, take = NESTS[self.rng.choice(list(NESTS))]
            branches = []
            for _ in range(2):
                fn, (a, b) = self.function(scope, kind + other)
                q = self.fresh("q")
                fn.unpacking = [f"{a} = {take[0].format(q)}", f"{b} = {take[1].format(q)}"]
                fn.parameters, fn.result = q, make.format(f"{a} * 1", f"{b} + 1")
                branches.append(fn)
            operands = make.format(name, self.value(scope, other))
            text = f"{self.names(branches)}, ({operands},))"
            return Statement(
                f"{name} = {take[0].format(f'ops.cond({self.predicate(scope)}, {text}')}", branches
            )
        branches = [self.function(scope, kind)[0] for _ in range(2)]
        text = f"{self.names(branches)}, ({name},))"
        return Statement(f"{name} = ops.cond({self.predicate(scope)}, {text}", branches)

    @staticmethod
    def names(functions: list[Function]) -> str:
        return ", ".join(fn.name for fn in functions)

    def number(self, scope: Scope, name: str, kind: str) -> Statement:
        """Branches that return Python numbers beside a tensor."""
        one, two = self.rng.choice([(2, 3), (1, 1), (0.5, 0.25)])
        branches = [self.function(scope, kind, gives=f"({{0}} * 1, {n})", size=1)[0] for n in (one, two)]
        predicate = self.predicate(scope, plain=scope.batched)
        call = f"ops.cond({predicate}, {self.names(branches)}, ({name},))"
        return Statement(f"{name} = scaled({call})", branches)

    def size(self, scope: Scope, name: str, kind: str) -> Statement:
        """Branches whose results differ in size."""
        yes = self.function(scope, kind, gives="{0}[:2].clone()", size=1)[0]
        no = self.function(scope, kind, size=1)[0]
        call = f"ops.cond({self.predicate(scope)}, {yes.name}, {no.name}, ({name},))"
        return Statement(f"{name} = {name} + {call}.sum() * 0.1", [yes, no])

    def while_loop(self, scope: Scope, name: str, kind: str) -> Statement:
        body, (i, a) = self.function(scope, "I" + kind)
        for statement in body.statements:  # the counter is the loop's own
            if statement.text.startswith(f"{i} = "):
                statement.text = f"{a} = {a} * 0.5"
        stop = self.rng.choice(["2", "3", "s.k", "1 + s.k"])
        test = Function(self.fresh("f"), f"{i}, {a}", [], [], f"{i} < {stop}")
        start, shown = self.rng.choice([("torch.tensor(0)", "{0}"), ("0", "{0}"), ("s.one * 0", "{0}")])
        if "numbers" not in self.features and start == "0":
            start = "torch.tensor(0)"
        if start == "0":  # a Python integer has no methods
            body.statements = [s for s in body.statements if f"{i} % 8" not in s.text]
        body.result = f"{i} + 1, {a} * 1"
        if "pytrees" in self.features and self.rng.random() < 0.5:
            make, take = NESTS[self.rng.choice(list(NESTS))]
            q = self.fresh("q")
            unpacking = [f"{i} = {take[0].format(q)}", f"{a} = {take[1].format(q)}"]
            body.parameters, body.unpacking = q, list(unpacking)
            test.parameters, test.unpacking = q, list(unpacking)
            body.result = f"({make.format(f'{i} + 1', f'{a} * 1')},)"
            call = f"ops.while_loop({test.name}, {body.name}, ({make.format(start, name)},))[0]"
            return Statement(f"{name} = {take[1].format(call)}", [test, body])
        call = f"ops.while_loop({test.name}, {body.name}, ({shown.format(start)}, {name}))[1]"
        return Statement(f"{name} = {call}", [test, body])

    def map(self, scope: Scope, name: str, kind: str) -> Statement:
        if self.rng.random() < 0.5:
            fn = self.function(scope, ELEMENT[kind])[0]
            return Statement(f"{name} = ops.map({fn.name}, {name})", [fn])
        fn, (a, b) = self.function(scope, ELEMENT[kind] * 2, gives="")
        make, join = self.nested(fn)
        fn.result = make.format(f"{a} * 1", f"{b} - 1")
        take = next(take for text, take in NESTS.values() if text == make)
        call = f"ops.map({fn.name}, {join(name, self.value(scope, kind))})"
        return Statement(f"{name} = {take[0].format(call)}", [fn])

    def scan(self, scope: Scope, name: str, kind: str) -> Statement:
        if kind in ELEMENT and self.rng.random() < 0.5:  # the stacked results
            over, carried = kind, self.rng.choice("VSI")
            state, rows = self.value(scope, carried), name
        else:
            over, carried = self.rng.choice("MV"), kind
            state, rows = name, self.value(scope, over)
        if carried == "I" and "numbers" in self.features:  # torch demands that first values are tensors
            state = f"torch.as_tensor({state})"
        fn, (c, row) = self.function(scope, carried + ELEMENT[over])
        fn.result = f"{c} * 1, {row} + {_converted(c, carried, ELEMENT[over])}"
        reverse = ", reverse=True" if self.rng.random() < 0.25 else ""
        call = f"ops.scan({fn.name}, {state}, {rows}{reverse})"
        if "pytrees" in self.features and self.rng.random() < 0.5:
            make, take = NESTS[self.rng.choice(list(NESTS))]
            q = self.fresh("q")
            fn.unpacking, fn.parameters = (
                [f"{c}, {row} = {take[0].format(q)}, {take[1].format(q)}"],
                f"{q}, _",
            )
            fn.result = f"{make.format(f'{c} * 1', f'{row} * 1')}, {make.format(f'{c} + 1', f'{row} + 2')}"
            first = f"{rows}[0] * 1"
            call = f"ops.scan({fn.name}, {make.format(state, first)}, {rows}{reverse})"
            done = 0 if carried == kind and rows != name else 1
            return Statement(f"{name} = {take[done].format(f'{call}[{done}]')}", [fn])
        return Statement(f"{name} = {call}[{0 if rows != name else 1}]", [fn])

    def associative_scan(self, scope: Scope, name: str, kind: str) -> Statement:
        a, b, c, d = (self.fresh("a") for _ in range(4))
        reverse = ", reverse=True" if self.rng.random() < 0.25 else ""
        simple = self.rng.choice([f"{a} + {b}", f"{a} * {b}", f"torch.maximum({a}, {b})", f"{a} + {b} * s.k"])
        if "* s.k" in simple:
            simple = f"{a} + {b} + s.w.sum() * 0"
        if self.rng.random() < 0.5:
            fn = Function(self.fresh("f"), f"{a}, {b}", [], [], simple)
            call = f"ops.associative_scan({fn.name}, {name} * 0.5, 0{reverse}, combine_mode='generic')"
            return Statement(f"{name} = {call}", [fn])
        make, take = NESTS[self.rng.choice(list(NESTS)) if "pytrees" in self.features else "tuple"]
        p, q = self.fresh("q"), self.fresh("q")
        unpacking = [f"{a}, {b}, {c}, {d} = {', '.join(t.format(v) for v in (p, q) for t in take)}"]
        result = make.format(f"{a} * {c}", f"{c} * {b} + {d}")
        fn = Function(self.fresh("f"), f"{p}, {q}", unpacking, [], result)
        xs = make.format(f"{name}.tanh()", f"{self.value(scope, kind)} * 0.5")
        call = f"ops.associative_scan({fn.name}, {xs}, 0{reverse}, combine_mode='generic')"
        return Statement(f"{name} = {take[1].format(call)}", [fn])

    def wrapped(self, scope: Scope, name: str, kind: str) -> Statement:
        """A checkpoint, a region that is compiled once and called twice, or a wrap."""
        operator = self.rng.choice(["checkpoint", "region", "wrap"])
        other = self.rng.choice("MVSI")
        # The recomputation of a checkpoint in the backward writes again, in eager.
        fn, (a, b) = self.function(scope, kind + other, quiet=operator == "checkpoint")
        fn.result = f"{a} * 1"
        second = self.value(scope, other)
        if "pytrees" in self.features and self.rng.random() < 0.5:
            make, join = self.nested(fn)
            take = next(take for text, take in NESTS.values() if text == make)
            fn.result = make.format(f"{a} * 1", f"{b} + 1")
            call = f"ops.{operator}({fn.name}, {join(name, second)})"
            return Statement(f"{name} = {take[0].format(call)}", [fn])
        call = f"ops.{operator}({fn.name}, {name}, {second})"
        if operator == "region" and self.rng.random() < 0.5:
            call = f"ops.region({fn.name}, {call}, {second})"
        return Statement(f"{name} = {call}", [fn])

    def vmap(self, scope: Scope, name: str, kind: str) -> Statement:
        fn = self.function(scope, ELEMENT[kind], quiet=True, batched=True)[0]
        return Statement(f"{name} = ops.vmap({fn.name})({name})", [fn])

    def grad(self, scope: Scope, name: str, kind: str) -> Statement:
        fn = self.function(scope, kind, gives="({0} * 1).sum()", quiet=True)[0]
        return Statement(f"{name} = ops.grad({fn.name})({name}) * 0.5", [fn])


def _converted(name: str, kind: str, wanted: str) -> str:
    """The variable ``name`` of ``kind`` as something that broadcasts to ``wanted``."""
    if kind == wanted or kind in "SI" or (kind, wanted) == ("V", "M"):
        return name
    return f"{name}.mean(0)" if (kind, wanted) == ("M", "V") else f"{name}.mean()"


def program(seed: int) -> Program:
    """The random program of a seed."""
    rng = random.Random(seed)
    features = frozenset(f for f in FEATURES if rng.random() < 0.35)
    writer = Writer(rng, features)
    own = {"a0": "M", "b0": "V", "c0": "S", "i0": "I"}
    scope = Scope(0, own, {"x": "M", "y": "V", "s.w": "V"})
    unpacking = ["a0, b0, c0, i0 = x * 2, y + 1, x.sum() * 0.1, s.one + 1"]
    statements = writer.statements(scope, rng.randint(1, 2))
    result = rng.choice(["a0, b0, c0, i0", "{'a': a0, 'rest': [b0, (c0, i0)]}"])
    function = Function("program", "ops, s, x, y", unpacking, statements, result)
    return Program(function, features, rng.random() < 0.4, rng.random() < 0.5)
