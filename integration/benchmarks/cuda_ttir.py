"""Reads the text of Triton's first representation of a kernel (TTIR) into records."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import cache

_LOCATION = re.compile(r"\s*loc\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
_NAME = re.compile(r"%[\w.$-]+(?:#\d+)?")
_ARGUMENT = re.compile(r"(%[\w.$-]+): (!tt\.ptr<[^>]*>|!tt\.tensordesc<[^>]*>+|\w+)")
_RESULTS = re.compile(r"^(%[\w.$-]+(?:, %[\w.$-]+)*)(?::(\d+))? = ")
_OPERATION = re.compile(r'"?([a-z_]+\.[\w.]+)"?')
_TENSOR = re.compile(r"tensor<((?:\d+x)*)")
_TYPE = re.compile(
    r"tensor<(?:\d+x)*(?:!tt\.ptr<[^>]*>|\w+)(?:, [^>]*)?>|!tt\.ptr<[^>]*>|\b[if]\d+\b|\bbf16\b|\bindex\b"
)
_ELEMENT = re.compile(r"(?:bf|f|i)(\d+)|f8\w*")


@dataclass(frozen=True)
class Type:
    """Of a value: the shape of a tensor (empty for a number), its kind (``i32``, ``bf16``), and whether it is an address."""

    shape: tuple[int, ...]
    element: str
    pointer: bool

    @property
    def integer(self) -> bool:
        return not self.pointer and (self.element[0] == "i")

    @property
    def bytes(self) -> int:
        """Of one element, which for an address is that which it points to."""
        found = _ELEMENT.search(self.element)
        bits = int(found.group(1) or 8) if found else 8
        return max(1, bits // 8)


@dataclass(frozen=True)
class Operation:
    """``attributes`` is the text between the operands and the types; ``regions`` are lists of operations."""

    name: str
    results: tuple[str, ...]
    operands: tuple[str, ...]
    text: str
    types: tuple[Type, ...]
    """Of the results; of an operation without results that of its first operand."""
    regions: tuple[list[Operation], ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Kernel:
    """``arguments`` are names with types, in the order of a launch's parameters."""

    name: str
    arguments: tuple[tuple[str, Type], ...]
    body: list[Operation] = field(compare=False)
    kind: str
    """``product``, ``reduction`` or ``pointwise``."""
    largest: int
    """The number of elements of its largest tile."""


@cache
def type_of(text: str) -> Type:
    shape = tuple(int(n) for n in _TENSOR.match(text).group(1).split("x")[:-1]) if "tensor<" in text else ()
    inner = text[text.rindex("x") + 1 :] if shape and "!tt.ptr" not in text else text
    pointer = "!tt.ptr" in text
    if pointer:
        inner = text.split("!tt.ptr<", 1)[1]
    return Type(shape, re.split(r"[,>]", inner)[0], pointer)


def read(text: str) -> Kernel:
    """The public function of a module."""
    lines = [_LOCATION.sub("", line).strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    start = next(k for k, line in enumerate(lines) if line.startswith("tt.func public"))
    head = lines[start]
    name = head.split("@", 1)[1].split("(", 1)[0]
    arguments = tuple((n, type_of(t)) for n, t in _ARGUMENT.findall(head))
    body, _ = _block(lines, start + 1)
    kind = "product" if "tt.dot" in text else "pointwise"
    if kind == "pointwise" and ('"tt.reduce"' in text or '"tt.scan"' in text):
        kind = "reduction"
    sizes = [math.prod(int(n) for n in s.split("x")[:-1]) for s in _TENSOR.findall(text) if s]
    return Kernel(name, arguments, body, kind, max(sizes, default=1))


def _block(lines: list[str], at: int) -> tuple[list[Operation], int]:
    """The operations from line ``at`` on to the brace that closes their block; and its line."""
    found = []
    while not lines[at].startswith("}"):
        line, regions = lines[at], []
        if line.startswith("^"):
            at += 1
            continue
        while lines[at].endswith("{"):
            inner, at = _block(lines, at + 1)
            regions.append(inner)
        if regions:
            line += " " + lines[at].lstrip("}) ")
        found.append(_operation(line, tuple(regions)))
        at += 1
    return found, at


def _operation(line: str, regions: tuple[list[Operation], ...]) -> Operation:
    named = _RESULTS.match(line)
    rest = line[named.end() :] if named else line
    results: tuple[str, ...] = ()
    if named:
        count = int(named.group(2) or 0)
        results = tuple(f"{named.group(1)}#{k}" for k in range(count)) or tuple(named.group(1).split(", "))
    name = _OPERATION.match(rest)
    assert name is not None, line
    return Operation(
        name.group(1),
        results,
        tuple(_NAME.findall(rest)),
        rest,
        _types(rest, name.group(1), len(results)),
        regions,
    )


def _types(text: str, name: str, count: int) -> tuple[Type, ...]:
    """The types of the results: the last of the line, but of a loop those in front of its counter's."""
    if text.endswith((" true", " false")):
        return (type_of("i1"),)
    signature = text.split("->", 1)[1] if "->" in text else text[text.rfind(" : ") + 3 :]
    found = [type_of(t) for t in _TYPE.findall(signature)]
    if name in {"scf.for", "scf.if", "tt.addptr"}:
        return tuple(found[:count])
    if " to " in signature:
        found = found[-1:]
    if name == "arith.select" and count:
        found = found[-1:]
    return tuple(found[-count:] if count else found[:1])


def dot_shapes(op: Operation) -> list[tuple[int, ...]]:
    """The shapes of the two factors of a product of tiles."""
    found = [type_of(text).shape for text in _TYPE.findall(op.text)]
    return [shape[-2:] for shape in found[:2]]
