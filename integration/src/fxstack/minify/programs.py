"""Reduce a program of which all graphs agree with eager and the results do not: capture is at fault.

A script captures the callables of the program and compares each call with eager, on copies of the arguments. The
program loses statements and expressions as long as the script fails.
"""

from __future__ import annotations

import ast
import builtins
import copy
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from fxstack.minify.compare import Failure
from fxstack.minify.trials import Send, Trials, attempt_of, execute

# Limits: modules that run by -m, and differences that only printed text or attributes of objects show.

HARNESS = """import copy
import torch
from torch.utils._pytree import tree_leaves
import fxstack

def checked(fn, **options):  # compile fn, and compare each call with eager on copies of the arguments
    made = fxstack.compile(fn, **options | {"backend": "eager"})
    def call(*args, **kwargs):
        other, copied, named = copy.deepcopy((fn, args, kwargs))
        with torch.random.fork_rng():
            expected = tree_leaves((other(*copied, **named), copied, named))
        result = made(*args, **kwargs)
        for found, right in zip(tree_leaves((result, args, kwargs)), expected, strict=True):
            if isinstance(right, torch.Tensor | int | float):
                torch.testing.assert_close(found, right, equal_nan=True)
        return result
    return call

"""
REPLACED = "torch.compile = fxstack.compile = lambda fn=None, **o: checked(fn, **o) if fn else lambda fn: checked(fn, **o)\n"
SECONDS = 600
"""After this time, no further statement is removed."""
_BODIES = ("body", "orelse", "finalbody")


@dataclass
class ProgramReduction:
    """Removes statements and expressions of ``tree``, the program ``argv[0]``, while it fails like ``failure``."""

    argv: Sequence[str]
    trials: Trials
    tell: Callable[[str], None]
    tree: ast.Module = field(init=False)
    failure: Failure | None = None
    _end: float = field(default_factory=lambda: time.monotonic() + SECONDS)
    """The time of ``time.monotonic`` after which no statement is removed."""

    def __post_init__(self) -> None:
        self.tree = ast.parse(Path(self.argv[0]).read_text(encoding="utf-8"))

    def find(self) -> Failure | None:
        """Run the whole program and return how a call of a compiled callable fails, if one does."""
        self.failure = self._attempt(self.tree)
        return self.failure

    def run(self) -> None:
        """Remove until everything that is left is needed, or the time is over."""
        changed = True
        while changed:
            changed, position = False, 0
            while (change := next(islice(changes(self.tree), position, None), None)) is not None:
                tree = change()
                if (
                    time.monotonic() < self._end
                    and self.failure
                    and self.failure.is_like(self._attempt(tree))
                ):
                    self.tree, changed = tree, True
                    count = sum(isinstance(node, ast.stmt) for node in ast.walk(tree))
                    self.tell(f"{count} statements, {self.trials.count} trials")
                else:
                    position += 1

    def text(self, about: str) -> str:
        """Return the script, in which the program names ``checked`` itself if this is possible."""
        direct = _direct(ast.unparse(self.tree))
        program = (
            direct
            if self.failure and self.failure.is_like(self._failure_of_compiler(direct))
            else self._script(self.tree)
        )
        return f"# {about}\n{program}\n"

    @staticmethod
    def _script(tree: ast.Module) -> str:
        return _IN_PLACE + ast.unparse(tree)

    def functions(self) -> str:
        """Return the functions that are left, with their places in the program."""
        nodes = [node for node in ast.walk(self.tree) if isinstance(node, (ast.FunctionDef, ast.Lambda))]
        names = (f"{getattr(node, 'name', '<lambda>')} ({self.argv[0]}:{node.lineno})" for node in nodes)
        return ", ".join(names)

    def lines(self) -> list[str]:
        """Return the lines of the program's functions that are left."""
        inside = [n for f in ast.walk(self.tree) if isinstance(f, ast.FunctionDef) for n in f.body]
        texts = {n.lineno: ast.unparse(n).splitlines()[0] for n in inside if hasattr(n, "lineno")}
        return [f"{self.argv[0]}:{line}: {text}" for line, text in sorted(texts.items())]

    def _attempt(self, tree: ast.Module) -> Failure | None:
        """Return how the script fails. A script that fails without a compiler, too, says nothing."""
        return None if undefined_names(tree) else self._failure_of_compiler(self._script(tree))

    def _failure_of_compiler(self, text: str) -> Failure | None:
        """Run a program text. Return its failure; None if it also fails without the compiler, or does not fail."""
        failure = self._run(text)
        without_compiler = re.sub(r"made = fxstack[._]compile\(", "made = (lambda fn, **_: fn)(", text)
        return None if failure is None or self._run(without_compiler) else failure

    def _run(self, text: str) -> Failure | None:
        """Run a script in a child and return how it fails."""
        self.trials.count += 1

        def run(send: Send) -> Any:
            """Execute the program text in a child process, as the main module with the program's arguments."""
            send((None, text))
            sys.argv = [*self.argv]
            sys.path.insert(0, str(Path(self.argv[0]).resolve().parent))
            return execute(text, {"__name__": "__main__", "__file__": self.argv[0]}), text

        return attempt_of(self.trials.forks.run(run)).failure


_IN_PLACE = (
    HARNESS.replace("fxstack.compile(fn", "fxstack_compile(fn")
    + f"fxstack_compile = fxstack.compile\n{REPLACED}"
)


def _direct(program: str) -> str:
    return HARNESS + re.sub(r"\b(torch|fxstack)\.compile\b", "checked", program)


def undefined_names(tree: ast.Module) -> set[str]:
    """Return names that the program loads and that nothing in it defines."""
    defined = {*dir(builtins), "torch", "fxstack", "copy", "__name__", "__file__"}
    loaded: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (loaded if isinstance(node.ctx, ast.Load) else defined).add(node.id)
        elif isinstance(node, ast.arg):
            defined.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defined.add(node.name)
        elif isinstance(node, ast.alias):
            defined.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            defined.add(node.name)
    return loaded - defined


Change = Callable[[], ast.Module]


def changes(tree: ast.Module) -> Iterator[Change]:
    """Return functions that make the program shorter: without statements, many at first, or with simpler expressions."""
    for index, (node, name) in enumerate(_bodies(tree)):
        body = getattr(node, name)
        size = len(body)
        while size:
            for start in range(len(body) - size, -1, -size):
                yield partial(_without, tree, index, start, size)
            size //= 2
        for start, statement in enumerate(body):
            inner = _inside(statement, tree)
            if inner:
                yield partial(_without, tree, index, start, 1, inner)
    for index, (expression, names) in enumerate(_expressions(tree)):
        parts = [part for part in ast.iter_child_nodes(expression) if isinstance(part, ast.expr)]
        for new in [*parts, *names]:
            if ast.dump(new) != ast.dump(expression):
                yield partial(_with, tree, index, new)


def _inside(statement: ast.stmt, tree: ast.Module) -> list[ast.stmt]:
    """Return the statements of a compound statement, or of the function that a statement calls without arguments."""
    match statement:
        case ast.FunctionDef() | ast.ClassDef():
            return []
        case ast.Expr(ast.Call(ast.Name(name), [], [])):
            defined = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
            return defined[0].body if defined else []
    return [inner for part in _BODIES for inner in getattr(statement, part, [])]


def _bodies(tree: ast.Module) -> list[tuple[ast.AST, str]]:
    return [(n, name) for n in ast.walk(tree) for name in _BODIES if isinstance(getattr(n, name, None), list)]


def _without(tree: ast.Module, index: int, start: int, size: int, new: Sequence[ast.stmt] = ()) -> ast.Module:
    """Return the program with ``new`` in place of ``size`` statements of the body number ``index``."""
    changed = copy.deepcopy(tree)
    node, name = _bodies(changed)[index]
    body = getattr(node, name)
    body[start : start + size] = copy.deepcopy(list(new))
    if not body and name == "body" and not isinstance(node, ast.Module):
        body.append(ast.Pass())
    return changed


def _expressions(tree: ast.AST) -> list[tuple[ast.expr, list[ast.expr]]]:
    """Return the compound expressions, each with the parameters of the function around it."""
    compound: list[tuple[ast.expr, list[ast.expr]]] = []

    def visit(node: ast.AST, names: list[ast.expr]) -> None:
        """Collect the compound expressions below ``node``. ``names``: the parameters of the function around them."""
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            names = [ast.Name(a.arg, ast.Load()) for a in node.args.args if a.arg != "self"]
        for child in ast.iter_child_nodes(node):
            loads = isinstance(child, ast.expr) and isinstance(getattr(child, "ctx", ast.Load()), ast.Load)
            if isinstance(child, ast.expr) and loads and not isinstance(child, (ast.Name, ast.Constant)):
                compound.append((child, names))
            visit(child, names)

    visit(tree, [])
    return compound


def _with(tree: ast.Module, index: int, new: ast.expr) -> ast.Module:
    """Return the program with ``new`` in place of the compound expression number ``index``."""
    changed = copy.deepcopy(tree)
    old = _expressions(changed)[index][0]

    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            return copy.deepcopy(new) if node is old else self.generic_visit(node)

    replaced: ast.Module = Replace().visit(changed)
    return replaced
