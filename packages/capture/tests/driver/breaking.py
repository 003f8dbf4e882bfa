"""Random programs with graph breaks at random places, at any depth of calls, compared with plain Python.

The programs are those of ``tests/api/programs.py``. Their calls of torch functions become calls of functions that
call each other through ``try``, ``with``, loops, closures, comprehensions, generators, classes and recursion, and
``BREAK`` (which writes to a stream) is put before random statements and around random expressions everywhere.
"""

import ast
import random

from differential import load, observe
from programs import program
from running import lines_of
from same import difference

import fxstack_capture

BREAK = """
def BREAK(value=None):
    OUT.write(".")
    return value
"""

NESTED = """
def via_try(t, u=1):
    try:
        t = t + u
        return via_with(t)
    except (ValueError, KeyError) as error:
        STATE["list"].append(type(error).__name__)
        raise Oops(2) from error
    finally:
        STATE["calls"] += 1

def via_with(t):
    with Context(STATE["list"]) as context, torch.no_grad():
        t = via_loop(t, n=2)
        context.log.append(torch.is_grad_enabled())
    return t

def via_loop(t, *, n=3):
    for i in range(n):
        t = leaf(t, i)
        if i == 1:
            continue
        t = t + 1
    else:
        t = t * 2
    return t

def via_closure(t):
    k = 1
    def inner(u):
        nonlocal k
        k += 1
        return leaf(u, k)
    return inner(t) + inner(t) * k

def via_comprehension(t):
    return sum([leaf(t, i) for i in range(2)]) + sum(leaf(t, i) for i in (1, 2))

def via_exception(t):
    try:
        raises(t)
    except Oops as error:
        t = t * error.args[0]
        try:
            raise KeyError(1)
        except KeyError:
            t = leaf(t, 2)
    return t

def raises(t):
    with Context(STATE["list"], False):
        t = t + 1
        raise Oops(3, extra=t)

def via_generator(t):
    total = t
    for u in gen(2, t):
        total = total + leaf(u, 1)
    return total

def via_class(t):
    box = Small(t)
    box.add(t)
    return (box + 1)(t, scale=box.extra) + box.double

def via_recursion(t, n=2):
    return t if n == 0 else leaf(via_recursion(t + n, n - 1), n)

def via_starred(t):
    return helper(*[t, 2], *(t, t), **{"flag": True}) + keywords(t, b=t, c=2)

def keywords(a, /, b=None, *, c, **rest):
    return a + b * c

def leaf(t, i):
    k = i + 1
    return t * k

def other(t):
    return 0 if t is None else t
"""
VIA = [line[4:].split("(")[0] for line in NESTED.splitlines() if line.startswith("def via_")]


class Breaks(ast.NodeTransformer):
    """Puts breaks in, and calls in place of torch's functions."""

    def __init__(self, seed, share):
        self.random = random.Random(seed)
        self.share = share

    def visit_FunctionDef(self, node):
        if node.name == "BREAK":
            return node
        self.generic_visit(node)
        node.body = self.block(node.body)
        return node

    def block(self, statements):
        out = []
        for statement in statements:
            if self.random.random() < self.share and not isinstance(statement, (ast.Nonlocal, ast.Global)):
                out.append(ast.Expr(self.call()))
            for field in ("body", "orelse", "finalbody"):
                inner = getattr(statement, field, None)
                if inner and not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                    setattr(statement, field, self.block(inner))
            for handler in getattr(statement, "handlers", ()):
                handler.body = self.block(handler.body)
            out.append(statement)
        first = [s for s in out if isinstance(s, (ast.Nonlocal, ast.Global))]
        return [*first, *(s for s in out if s not in first)]

    def call(self, *arguments):
        return ast.Call(ast.Name("BREAK", ast.Load()), list(arguments), [])

    def visit_Call(self, node):
        self.generic_visit(node)
        function = node.func
        if (
            isinstance(function, ast.Attribute)
            and function.attr in ("sin", "relu", "tanh")
            and len(node.args) == 1
        ):
            node.func = ast.Name(self.random.choice(VIA), ast.Load())
        return self.wrapped(node)

    def visit_BinOp(self, node):
        self.generic_visit(node)
        return self.wrapped(node)

    def wrapped(self, node):
        return self.call(node) if self.random.random() < self.share / 2 else node


class Unwrap(ast.NodeTransformer):
    """Takes the breaks out again."""

    def visit_Call(self, node):
        self.generic_visit(node)
        is_break = isinstance(node.func, ast.Name) and node.func.id == "BREAK"
        return node.args[0] if is_break else node


def broken_program(seed, share=None):
    """The source of a program; ``share`` of its statements have a break before them."""
    share = share or random.Random(seed).choice([0.02, 0.05, 0.1, 0.2])
    source = program(seed, breaks=False).replace("\nclass Box:", BREAK + "\nclass Box:")
    source = source.replace("\ndef f(", NESTED + "\ndef f(")
    tree = Breaks(seed, share).visit(ast.parse(source))
    for statement in tree.body:  # what the module sets up is there before BREAK is
        if isinstance(statement, ast.Assign):
            statement.value = Unwrap().visit(statement.value)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def error_and_lines(error):
    return error, lines_of(error)


def compare_broken(seed, calls=(0, 0, 1, 3)):
    """None when compiled and plain agree, else what differs."""
    source = broken_program(seed)
    plain, compiled = load(source, f"<plain {seed}>"), load(source, "<string>")
    expected = observe(plain, plain["f"], calls, error_and_lines)
    found = observe(compiled, fxstack_capture.optimize()(compiled["f"]), calls, error_and_lines)
    return difference(expected, found)
