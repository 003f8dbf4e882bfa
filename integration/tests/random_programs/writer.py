"""Writes a random program: statement by statement, each run in eager torch before the next is chosen.

Statements are drawn from the variables that a probe finds at the place where the next one goes, so nearly all of what is
written runs; what raises is dropped, but for a few. ``program(seed)`` is the whole: see ``Program``.
"""

from __future__ import annotations

import contextlib
import io
import random
import warnings
from dataclasses import dataclass, field

import torch

from .expressions import GROUPS
from .inputs import Inputs
from .prelude import PRELUDE
from .statements import STATEMENTS, finish
from .tree import Node, bodies, body_lines

LARGEST = 1e3
"""Floats beyond this are not kept: rounding errors of what follows would say nothing."""
PSEUDO = ("box.value", "self.buf", "items[0]", "table['k']", "self.lin.weight")
"""Tensors that are not local variables."""


@dataclass
class Program:
    """``body`` of the function ``f`` (of a module's ``forward``); all else is made from ``inputs``."""

    seed: int
    inputs: Inputs
    body: list[Node] = field(default_factory=list)

    def function(self, cursor: list[Node] | None = None) -> str:
        head, level = self.inputs.head()
        return "\n".join([*head, *body_lines(self.body, level, cursor)]) + "\n"

    def source(self) -> str:
        """A whole module: ``make()`` gives what is compiled, ``state()`` what lasts, ``arguments(k)`` what a call gets."""
        return f"{PRELUDE}\n{self.function()}\n{self.inputs.source()}"


def finite(value: torch.Tensor) -> bool:
    if not value.numel() or not (value.is_floating_point() or value.is_complex()):
        return True
    return bool(value.detach().abs().max() <= LARGEST)


class Scope:
    """What the probe saw in each call: names of tensors with their metadata, and of other values by kind."""

    def __init__(self, seen: list[dict[str, object]]) -> None:
        names = [name for name in seen[0] if all(name in call for call in seen)]
        self.tensors: dict[str, list[torch.Tensor]] = {}
        self.others: dict[str, list[str]] = {}
        for name in names:
            values = [call[name] for call in seen]
            if all(isinstance(v, torch.Tensor) for v in values):
                if len({(v.dtype, v.dim()) for v in values}) == 1:
                    self.tensors[name] = values
            elif len({type(v) for v in values}) == 1:
                self.others.setdefault(type(values[0]).__name__, []).append(name)


KINDS = {
    "any": lambda t: not t.is_complex(),
    "float": lambda t: t.is_floating_point(),
    "number": lambda t: t.dtype is not torch.bool and not t.is_complex(),
    "int": lambda t: not t.is_floating_point() and t.dtype is not torch.bool and not t.is_complex(),
    "bool": lambda t: t.dtype is torch.bool,
    "complex": lambda t: t.is_complex(),
    "all": lambda t: True,
}


class Writer:
    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.program = Program(seed, Inputs(self.r))
        self.body = self.program.body
        self.depth = self.fresh = 0
        self.loops = 0
        self.namespace: dict[str, object] = {}
        exec(compile(PRELUDE, "<prelude>", "exec"), self.namespace)
        self.breaks = self.r.random() < 0.5
        self.scope = self.probe()
        assert self.scope is not None, self.program.function()

    # what templates ask for

    def tensors(self, kind: str = "any", rank: int = 0, max_rank: int = 9) -> list[str]:
        return [
            name
            for name, values in self.scope.tensors.items()
            if KINDS[kind](values[0]) and rank <= values[0].dim() <= max_rank
        ]

    def tensor(self, kind: str = "any", rank: int = 0, max_rank: int = 9) -> str | None:
        found = self.tensors(kind, rank, max_rank)
        if not found:
            return None
        recent = found[-4:]
        return self.r.choice(recent if self.r.random() < 0.5 else found)

    def operand(self, kind: str) -> str | None:
        name = self.tensor(kind)
        if name is None or self.r.random() < 0.7:
            return name
        return self.r.choice(["torch.sin({0})", "({0} * 2)", "({0} + 1)", "{0}.abs()"]).format(name)

    def rank(self, name: str) -> int:
        return self.scope.tensors[name][0].dim()

    def dim(self, name: str) -> int:
        return self.r.randrange(-self.rank(name), self.rank(name))

    def partner(self, name: str) -> str:
        """A tensor that broadcasts with ``name``, of the same kind."""
        mine = self.scope.tensors[name]
        kind = next(k for k in ("float", "bool", "int", "complex") if KINDS[k](mine[0]))
        found = [
            other for other in self.tensors(kind) if all(map(broadcast, self.scope.tensors[other], mine))
        ]
        return self.r.choice(found or [name])

    def value(self) -> str:
        return self.r.choice(["0.5", "-1.0", "2.0", "0.1", "1.5", "-0.25", "s", "s", "0.0", "3"])

    def number(self) -> str:
        r, name = self.r, self.tensor("any", 1)
        known = [*self.scope.others.get("int", []), *self.scope.others.get("float", [])]
        options = ["n", "n", "s", str(r.randrange(-2, 4)), "len(items)", "len(box)"]
        options += [r.choice(known)] * 2 if known else []
        options += [f"{name}.shape[-1]", f"{name}.size(0)", f"{name}.dim()"] if name else []
        return r.choice(options)

    def name(self, kind: str) -> str:
        self.fresh += 1
        return f"{kind}{self.fresh}"

    def expression(self) -> str | None:
        groups = GROUPS if self.breaks else GROUPS[:-1]
        group = self.r.choices([g for g, _ in groups], [weight for _, weight in groups])[0]
        return self.r.choice(group)(self)

    # building

    def line(self, text: str) -> bool:
        """Add a line that runs; False, and nothing changed, if it does not."""
        return self.add(Node(text))

    def add(self, node: Node) -> bool:
        self.body.append(node)
        return self.settle(node)

    def settle(self, node: Node) -> bool:
        """Keep ``node``, the last of the body, if the program runs with it."""
        scope = self.probe()
        if scope is None:
            self.body.remove(node)
            return False
        self.scope = scope
        return True

    def settle_if(self, node: Node) -> bool:
        """The same for what may leave the function."""
        before = self.scope
        kept = self.add(node)
        return kept or not before

    def block(self, *headers: str, count: tuple[int, int] = (1, 3), first: str = "") -> Node:
        """A compound statement whose clauses are filled one after the other; the caller settles it."""
        node = Node(clauses=[(header, []) for header in headers])
        if first:
            node.clauses[0][1].append(Node(first))
        self.body.append(node)
        outer, scope = self.body, self.scope
        self.depth += 1
        for _, body in node.clauses:
            self.body = body
            inner = self.probe()
            if inner is not None:
                self.scope = inner
                wanted, tries = self.r.randint(*count), 0
                while len(body) < wanted and tries < 3 * wanted:
                    tries += 1
                    self.statement()
        self.depth -= 1
        self.body, self.scope = outer, scope
        return node

    def statement(self) -> bool:
        writers = [(s, weight) for s, weight, deepest in STATEMENTS if self.depth <= deepest]
        return self.r.choices([s for s, _ in writers], [w for _, w in writers])[0](self)

    # running

    def probe(self) -> Scope | None:
        """The variables at the end of the current body, or None if the program raises or gives something unusable."""
        seen: list[dict[str, object]] = []
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                self.run(seen)
        except Exception:
            return None
        return Scope(seen) if seen else None

    def run(self, seen: list[dict[str, object]]) -> None:
        space, inputs = self.namespace, self.program.inputs
        space.update(OUT=io.StringIO(), STATE={"calls": 0, "list": []}, COUNT=0)
        space["Box"].total = 0
        reached = [0]

        def probe(names: dict[str, object]) -> None:
            if len(seen) < reached[0]:
                seen.append(self.record(names))

        space["PROBE"] = probe
        text = self.program.function(self.body) + "\n" + inputs.source()
        exec(compile(text, "<program>", "exec"), space)
        made, lasting = space["make"](), space["state"]()
        for call in range(inputs.calls):
            torch.default_generator.manual_seed(call)
            random.seed(call)
            reached[0] = len(seen) + 1
            made(*space["arguments"](call), *lasting)

    def record(self, names: dict[str, object]) -> dict[str, object]:
        found: dict[str, object] = {}
        for text in PSEUDO:
            with contextlib.suppress(Exception):
                found[text] = eval(text, self.namespace, names)
        found.update({k: v for k, v in names.items() if not k.startswith("_")})
        for value in found.values():
            if isinstance(value, torch.Tensor) and value.layout is torch.strided:
                if value.numel() > self.program.inputs.largest or not finite(value):
                    raise OverflowError
        return {
            k: v.detach() if isinstance(v, torch.Tensor) else v
            for k, v in found.items()
            if not isinstance(v, torch.Tensor) or v.layout is torch.strided
        }


def broadcast(a: torch.Tensor, b: torch.Tensor) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(a.shape[::-1], b.shape[::-1]))


def program(seed: int) -> Program:
    """The program of a seed: always the same one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _program(seed)
    finally:
        torch.set_num_threads(threads)


def _program(seed: int) -> Program:
    w = Writer(seed)
    wanted = w.r.choice([4, 6, 8, 10, 12, 16, 20])
    tries = 0
    while len(w.program.body) < wanted and tries < 80:
        tries += 1
        w.statement()
    finish(w)
    return w.program


def count(program: Program) -> int:
    return sum(len(body) for body in bodies(program.body))
