"""Python state around a compiled call: arguments, closures, globals, containers, attributes, exceptions."""

import collections
import copy
import dataclasses
import functools
import pickle
import sys
import threading
import typing

import torch
from beside_eager import Programs, attempt, describe

program = Programs()
COUNTER = 0
HISTORY = []


def vector(n=4):
    return torch.linspace(-1, 1, n)


@program(graphs=1, breaks=0)
def closure_nonlocal(c):
    count = 0

    def step(x):
        nonlocal count
        count += 1
        return x + 1

    f = c(step)
    return [f(vector()) for _ in range(1)], count


@program(breaks=0)
def closure_nonlocal_many(c):
    count = 0

    def step(x):
        nonlocal count
        count += 1
        return x + count

    f = c(step)
    return [f(vector()) for _ in range(4)], count


@program(breaks=0)
def global_counter(c):
    global COUNTER
    COUNTER = 0

    def step(x):
        global COUNTER
        COUNTER += 1
        return x * COUNTER

    f = c(step)
    return [f(vector()) for _ in range(3)], COUNTER


@program(graphs=1, breaks=0)
def global_list_appended(c):
    HISTORY.clear()

    def step(x):
        HISTORY.append(x * 2)
        return x.sin()

    f = c(step)
    return [f(vector()) for _ in range(1)], list(HISTORY)


@program(breaks=0)
def list_argument_mutated(c):
    @c
    def f(xs):
        xs.append(xs[0] + xs[-1])
        xs[0] = xs[1]
        del xs[1]
        return xs

    xs = [vector(), vector() * 2, vector() * 3]
    r = f(xs)
    return r is xs, r, xs, f([vector(), vector() * 2, vector() * 3])


@program(breaks=0)
def dict_argument_mutated(c):
    @c
    def f(d):
        d["sum"] = d["a"] + d["b"]
        d.pop("a")
        d["b"].mul_(2)
        d.setdefault("z", []).append(d["sum"].neg())
        return {k: v for k, v in d.items()}

    d = {"a": vector(), "b": vector() * 2}
    return f(d), d, f({"a": vector(), "b": vector() * 2})


@dataclasses.dataclass
class Pair:
    left: torch.Tensor
    right: torch.Tensor
    tag: str = "none"


class Point(typing.NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


@program(graphs=1, breaks=0)
def dataclass_in_and_out(c):
    @c
    def f(p):
        p.tag = "seen"
        return Pair(p.left + p.right, p.left, tag=p.tag + "!")

    p = Pair(vector(), vector() * 2)
    return p, f(p), f(Pair(vector(), vector()))


@program(graphs=1, breaks=0)
def namedtuple_in_and_out(c):
    @c
    def f(p):
        return p._replace(x=p.x + p.y), Point(*p)

    p = Point(vector(), vector())
    return p, f(p), f(p)


@program(graphs=1, breaks=0)
def frozen_dataclass_replace(c):
    @dataclasses.dataclass(frozen=True)
    class Config:
        scale: float
        bias: torch.Tensor

    @c
    def f(cfg, x):
        cfg = dataclasses.replace(cfg, scale=cfg.scale * 2)
        return x * cfg.scale + cfg.bias

    cfg = Config(0.5, vector())
    return f(cfg, vector()), f(cfg, vector())


@program(breaks=0)
def varargs_and_kwargs(c):
    @c
    def f(x, *rest, scale=2, **named):
        for r in rest:
            x = x + r
        for key in sorted(named):
            x = x * scale + named[key]
        return x, rest, named

    x = vector()
    return f(x), f(x, x, x), f(x, scale=3, b=x, a=x * 2), f(x, x, a=x)


@program(breaks=0)
def mutable_default_argument(c):
    @c
    def f(x, seen=[]):  # noqa: B006 - the pitfall is the point
        seen.append(1)
        return x + 1, seen

    return f(vector())[1], len(f(vector())[1])


@program(breaks=0)
def module_counter_and_history(c):
    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0
            self.norms = []
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x):
            self.calls += 1
            self.norms.append(x.norm())
            self.total += x
            self.last = x * 2
            return x + self.calls

    m = M()
    f = c(m)
    return [f(vector()) for _ in range(4)], m.calls, m.norms, m.last, m


@program(graphs=1, breaks=0)
def buffer_replaced(c):
    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, x):
            self.mean = self.mean * 0.9 + x * 0.1
            return x - self.mean

    m = M()
    f = c(m)
    return [f(vector()) for _ in range(3)], m


@program(breaks=0)
def strings_none_ints_floats(c):
    @c
    def f(x, mode, k=None, s=1.0):
        if mode == "sum":
            x = x.sum()
        if k is not None:
            x = x * k
        return x + s

    x = vector()
    return (
        f(x, "sum"),
        f(x, "none"),
        f(x, "sum", 2),
        f(x, "sum", 3),
        f(x, "sum", 7),
        f(x, "a", 4, 0.5),
        f(x, "a", 4, 0.25),
        f(x, "a", 4, 0.125),
        f(x, "a", True),
        f(x, "a", 2.5),
    )


@program(breaks=0)
def integer_only_function(c):
    @c
    def f(n, x):
        return n * 2 + 1, x + n, [n] * 2

    return [f(n, vector()) for n in (1, 2, 3, 5)]


@program(breaks=0)
def float_nan_and_inf_arguments(c):
    @c
    def f(x, s):
        return x * s, s

    return [f(vector(), s) for s in (1.0, float("nan"), float("inf"), -0.0, 0.0, 1e300)]


@program()
def print_in_the_middle(c):
    out = []

    @c
    def f(x):
        y = x + 1
        out.append(int(y.sum().item() * 0))
        print(end="", file=sys.stderr)
        return y * 2

    return f(vector()), f(vector()), out


@program(breaks=0)
def raises_and_catches(c):
    class Custom(ValueError):
        pass

    @c
    def f(x, bad):
        log = []
        try:
            log.append("try")
            if bad:
                raise Custom("bad", 3)
            y = x + 1
        except ValueError as error:
            log.append(describe(error))
            y = x - 1
        else:
            log.append("else")
        finally:
            log.append("finally")
        return y, log

    return f(vector(), False), f(vector(), True), f(vector(), False)


@program()
def exception_leaves(c):
    state = []

    @c
    def f(x, d):
        state.append(1)
        x.add_(1)
        return x * d["missing"]

    x = vector()
    return attempt(f, x, {}), x, state, attempt(f, x, {}), x, state, attempt(f, x, {"missing": 2})


@program()
def exception_cause_and_context(c):
    @c
    def f(x):
        try:
            {}["k"]
        except KeyError as e:
            raise RuntimeError(f"wrapped {x.shape[0]}") from e

    try:
        f(vector())
    except RuntimeError as error:
        return describe(error), describe(error.__cause__), error.__suppress_context__


@program()
def shape_error_text(c):
    @c
    def f(x, y):
        return x.sin() + y

    return attempt(f, vector(3), vector(4)), attempt(f, vector(4), vector(4))


@program()
def shape_error_caught_inside(c):
    @c
    def f(x, y):
        try:
            return x @ y
        except RuntimeError as e:
            return str(e), x + 1

    return f(vector(3), vector(4)), f(vector(4), vector(4))


@program()
def index_error_text(c):
    @c
    def f(x, i):
        return x[i] * 2

    return attempt(f, vector(), 7), attempt(f, vector(), 1), attempt(f, vector(), -5)


@program()
def type_error_text(c):
    f = c(lambda x, y: torch.sin(x) + torch.add(x, y))
    return attempt(f, vector(), "a"), attempt(f, vector()), attempt(f, vector(), None)


@program()
def embedding_index_out_of_range(c):
    f = c(torch.nn.Embedding(4, 2))
    return attempt(f, torch.tensor([0, 9])), attempt(f, torch.tensor([0, 3]))[0].shape


@program(graphs=1, breaks=0)
def comprehensions_sorted_and_generators(c):
    @c
    def f(xs, names):
        pairs = sorted(zip(names, xs), key=lambda p: p[0])
        gen = (x * 2 for _, x in pairs)
        total = sum(gen)
        mapped = list(map(lambda x: x + 1, xs))
        squares = {n: x * x for n, x in pairs}
        return total, mapped, squares, max(names), any(n == "a" for n in names)

    xs = [vector(), vector() * 2, vector() * 3]
    return f(xs, ["c", "a", "b"]), f(xs, ["c", "a", "b"])


@program(graphs=1, breaks=0)
def recursion(c):
    def tree(x, depth):
        return x.sin() if depth == 0 else tree(x, depth - 1) + tree(x * 2, depth - 1)

    f = c(tree)
    return f(vector(), 4), f(vector(), 4)


@program()
def deep_nesting_of_containers(c):
    @c
    def f(d):
        d["a"][0]["b"][1].add_(1)
        node = d
        for _ in range(20):
            node["next"] = {"x": d["a"][0]["b"][1]}
            node = node["next"]
        return d

    x = vector()
    d = {"a": [{"b": (x, x[1:])}]}
    return f(d), x


@program(graphs=1, breaks=0)
def many_arguments(c):
    @c
    def f(*xs):
        total = xs[0]
        for x in xs[1:]:
            total = total + x
        return total

    xs = [torch.full((3,), float(i)) for i in range(300)]
    return f(*xs), f(*xs)


@program(graphs=1, breaks=0)
def bound_method(c):
    class Model:
        def __init__(self):
            self.w = vector()
            self.n = 0

        def run(self, x):
            return x * self.w

    m = Model()
    f = c(m.run)
    a = f(vector())
    m.w.add_(1)
    return a, f(vector())


@program(graphs=1, breaks=0)
def static_class_and_property(c):
    class Model:
        scale = 2.0

        @staticmethod
        def s(x):
            return x + 1

        @classmethod
        def k(cls, x):
            return x * cls.scale

        @property
        def p(self):
            return self.scale + 1

        @functools.cached_property
        def q(self):
            return vector() * 3

    m = Model()
    f = c(lambda x: m.s(x) + m.k(x) * m.p + m.q)
    return f(vector()), "q" in vars(m)


@program(breaks=0)
def partial_and_wraps(c):
    def deco(fn):
        @functools.wraps(fn)
        def inner(*a, **k):
            return fn(*a, **k) + 1

        return inner

    @deco
    def base(x, y, z=1):
        return x * y + z

    f = c(functools.partial(base, vector(), z=3))
    g = c(base)
    return f(vector()), g(vector(), 2.0), g.__name__


@program(graphs=1, breaks=0)
def compile_of_compiled(c):
    f = c(c(lambda x: x + 1))
    return f(vector())


@program()
def nested_compiled_call(c):
    inner = c(lambda x: x.sin() * 2)
    outer = c(lambda x: inner(x) + inner(x * 2))
    return outer(vector()), outer(vector()), inner(vector())


@program()
def context_managers(c):
    log = []

    class Scope:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            log.append("in " + self.name)
            return self

        def __exit__(self, kind, value, tb):
            log.append(("out", self.name, kind and kind.__name__))
            return kind is KeyError

    @c
    def f(x, d):
        with Scope("a") as s, Scope("b"):
            x = x + len(s.name)
            return x * d["k"]

    return f(vector(), {"k": 2}), f(vector(), {}), log


@program(breaks=0)
def collections_inside(c):
    @c
    def f(x):
        d = collections.defaultdict(list)
        d["a"].append(x)
        d["a"].append(x + 1)
        q = collections.deque(maxlen=2)
        q.extend([x, x * 2, x * 3])
        o = collections.OrderedDict(b=x, a=x + 1)
        o.move_to_end("b")
        n = collections.Counter("abca")
        return dict(d), q, o, n

    return f(vector()), f(vector())


@program(graphs=1, breaks=0)
def class_made_inside(c):
    @c
    def f(x):
        class Box:
            def __init__(self, v):
                self.v = v

            def __add__(self, other):
                return Box(self.v + other.v)

        return (Box(x) + Box(x * 2)).v

    return f(vector())


@program(breaks=0)
def function_returned(c):
    @c
    def f(x):
        y = x * 2

        def g(z):
            return y + z

        return g

    g = f(vector())
    return g(vector()), g(vector() * 2)


@program()
def generator_function(c):
    @c
    def f(x):
        for i in range(3):
            x = x + i
            yield x

    return list(f(vector())), list(f(vector()))


@program()
def while_on_data(c):
    @c
    def f(x):
        n = 0
        while x.sum() < 10:
            x = x + 1
            n += 1
        return x, n

    return f(vector()), f(vector() + 5), f(vector() + 1)


@program()
def branch_on_data(c):
    @c
    def f(x):
        if x.sum() > 0:
            y = x * 2
        else:
            y = x - 1
        return y.cos()

    return f(vector() + 1), f(vector() - 1), f(vector() + 1)


@program()
def item_and_tolist(c):
    @c
    def f(x):
        n = int(x.max().item())
        values = x.tolist()
        return torch.ones(n) * len(values), values, x[0].item()

    return f(torch.tensor([1.0, 3.0])), f(torch.tensor([2.0, 5.0])), f(torch.tensor([0.0, 0.5]))


@program()
def break_inside_nested_calls(c):
    def leaf(x):
        x = x + 1
        k = x[0].item()
        return x * k

    def middle(x, log):
        log.append("before")
        y = leaf(x * 2)
        log.append("after")
        return y + 1

    @c
    def f(x):
        log = []
        out = [middle(x * i, log) for i in range(3)]
        return out, log

    return f(vector()), f(vector() + 3)


@program()
def break_in_loop_with_try(c):
    @c
    def f(xs):
        out = []
        for i, x in enumerate(xs):
            try:
                with torch.no_grad():
                    v = x.sum().item()
                    if v > 2:
                        raise ValueError(i)
                    out.append(x * v)
            except ValueError as e:
                out.append(e.args)
                continue
            finally:
                out.append(torch.is_grad_enabled())
        return out

    return f([vector(), vector() + 1, vector()]), f([vector(), vector() + 1, vector()])


@program()
def deepcopy_and_pickle_of_compiled(c):
    m = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    f = c(m)
    x = vector().reshape(1, 4)
    a = f(x)
    twin = copy.deepcopy(f)
    with torch.no_grad():
        m[0].weight.zero_()
    again = pickle.loads(pickle.dumps(m))
    return a, f(x), twin(x), again(x), sorted(k.replace("_orig_mod.", "") for k in f.state_dict())


@program()
def threads(c):
    f = c(lambda x, n: (x * n).sin())
    results = {}

    def work(i):
        results[i] = [f(vector(3 + j % 2), i) for j in range(4)]

    pool = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in pool:
        t.start()
    for t in pool:
        t.join()
    return [results[i] for i in range(4)]


@program()
def recompile_limit_keeps_results(c):
    f = c(lambda x, s: x + len(s))
    return [f(vector(), "a" * i) for i in range(12)]


@program(breaks=0)
def same_object_twice(c):
    @c
    def f(a, b):
        a.append(1)
        return len(b), a is b

    x = []
    return f(x, x), f([], []), f(x, []), f(x, x)


@program(breaks=0)
def mutation_through_alias(c):
    @c
    def f(d):
        d["a"]["n"] += 1
        return d["b"]["n"], d["a"] is d["b"]

    s = {"n": 1}
    d = {"a": s, "b": s}
    return f(d), s, f({"a": {"n": 1}, "b": {"n": 1}})


@program(breaks=0)
def attribute_added_and_deleted(c):
    class Bag:
        pass

    @c
    def f(b, x):
        b.new = x + 1
        if hasattr(b, "old"):
            del b.old
        setattr(b, "dyn" + "amic", getattr(b, "nope", 5))
        return b

    b = Bag()
    b.old = 1
    f(b, vector())
    c2 = Bag()
    f(c2, vector())
    return vars(b), vars(c2)


@program(breaks=0)
def string_work(c):
    @c
    def f(x, name):
        text = f"{name!r:>10}|{x.dim()}|{x.dtype}|{tuple(x.shape)}|{3.14159:.2f}"
        return text.upper().split("|"), x + len(text)

    return f(vector(), "ab"), f(vector(), "cde")


@program()
def match_statement(c):
    @c
    def f(v):
        match v:
            case {"kind": "add", "args": [a, b]}:
                return a + b
            case Point(x=x, y=y):
                return x * y
            case [a, *rest]:
                return a, len(rest)
            case int(n):
                return n

    x = vector()
    return f({"kind": "add", "args": [x, x]}), f(Point(x, x + 1)), f([x, 1, 2]), f(3)


@program()
def walrus_star_unpack_ternary(c):
    @c
    def f(xs):
        if (n := len(xs)) > 2:
            first, *mid, last = xs
            return first + last * n, [*mid, *mid], {"a": first, "b": last}
        return None if not xs else xs[0]

    return f([vector(), vector() * 2, vector() * 3, vector() * 4]), f([]), f([vector()])


@program()
def id_hash_and_is(c):
    @c
    def f(x, y):
        s = {x: 1}
        return x is y, x in s, y in s, id(x) == id(y), x + y

    x, y = vector(), vector()
    return f(x, y), f(x, x)


@program()
def isinstance_and_type(c):
    @c
    def f(x, m):
        return (
            type(x) is torch.Tensor, isinstance(x, torch.nn.Parameter), type(x).__name__,
            isinstance(m, torch.nn.Module), type(m) is torch.nn.Linear, callable(m), x.__class__ is torch.Tensor,
        )  # fmt: skip

    return f(vector(), torch.nn.Linear(1, 1)), f(torch.nn.Parameter(vector()), len)


test_state = program.tests()
