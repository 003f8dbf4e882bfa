"""Repeated statements of a native host program as a loop over tables.

A step of an optimizer over many parameters, and a model of many equal layers, repeat the same statements with other places of
tensors and numbers. A C compiler takes time for each statement, but little time for a number in a table.

Lines repeat if they differ only in whole numbers, texts, tables and the names of variables. A variable that the repeated lines
declare may be used only in the same repetition; all other variables must be the same in each repetition.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

MIN_REPETITIONS = 8
MIN_LINES = 64
"""The numbers of repetitions and of lines from which on a loop pays."""
MAX_TRIALS = 24
"""The number of periods that are tried for one line."""

INDEX = "fx_each"
"""The C variable with the number of the repetition."""
TOKEN = re.compile(
    r'(?P<text>"(?:[^"\\]|\\.)*")'
    r"|(?P<table>\bfx_table_\d+\b)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<number>(?:0|[1-9]\d{0,17})(?![\w.]))"
    r"|(?P<other>0[xX][0-9a-fA-F.]+(?:[pP][-+]?\d+)?\w*|\d[\w.]*(?:(?<=[eE])[-+]\d+)?)"
)
WORDS = re.compile(r'"(?:[^"\\]|\\.)*"|[\w.]+')
"""Everything in which lines of one form may differ, and more."""
DECLARED = re.compile(r"\s*(?:void\*|fx_number|int64_t|int32_t|double) (\w+)(?: =|;)")
"""A line that declares a variable of the function."""
FIXED = re.compile(
    r"\bstatic\b|\bchar\b|\b(?:void\*|int64_t|fx_number|fx_object\*) \w+\[|\b(?:case|break|continue|for)\b"
)
"""Lines that are the same in each repetition: they declare an array or a table, or belong to another loop."""
TYPES: Mapping[str, str] = {
    "number": "const int64_t",
    "text": "const char* const",
    "table": "const int64_t* const",
}
"""The C type of the items of a table, by the kind of token."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line in pieces: the texts between its tokens, and the tokens, each with its kind."""

    between: tuple[str, ...]
    tokens: tuple[tuple[str, str], ...]

    @property
    def form(self) -> tuple[object, ...]:
        """Everything that lines have in common that repeat each other, without the names of variables."""
        return self.between, tuple([kind for kind, _ in self.tokens])

    def printed(self, tokens: Sequence[str]) -> str:
        """Return the line with other tokens."""
        return "".join([part for pair in zip(self.between, (*tokens, ""), strict=True) for part in pair])


def with_loops(lines: Sequence[str]) -> list[str]:
    """Return the statements ``lines``, with loops in place of repeated lines."""
    outlines = [WORDS.sub("", line) for line in lines]
    counts = Counter(outlines)
    frequent = [counts[outline] >= MIN_REPETITIONS for outline in outlines]
    return _Roller(lines, frequent).run() if sum(frequent) >= MIN_LINES else list(lines)


class _Roller:
    """Finds repeated lines, and writes the loops. Only those of ``lines`` that are ``frequent`` may repeat."""

    def __init__(self, lines: Sequence[str], frequent: Sequence[bool]) -> None:
        self.texts = lines
        self.lines: dict[int, Line] = {}
        declared = [(match[1], place) for place, line in enumerate(lines) if (match := DECLARED.match(line))]
        counts = Counter(name for name, _ in declared)
        self.declared = {name: place for name, place in declared if counts[name] == 1}
        """The places of declarations. A name that several blocks declare is no variable of the function."""
        numbers: dict[object, int] = {}
        forms = [self.line(place).form if often else place for place, often in enumerate(frequent)]
        self.forms = [numbers.setdefault(form, len(numbers)) for form in forms]
        self.braces: dict[int, tuple[int, int]] = {}
        """By form: the number of blocks that a line leaves open, and the least number within it."""
        self.places: dict[int, list[int]] = defaultdict(list)
        for place, form in enumerate(self.forms):
            self.places[form].append(place)

    @cached_property
    def last_use(self) -> dict[str, int]:
        """The place of the last line that uses a variable."""
        tokens = ((place, token) for place in range(len(self.texts)) for token in self.line(place).tokens)
        return {token: place for place, (kind, token) in tokens if kind == "variable"}

    def line(self, place: int) -> Line:
        """Return a line in pieces."""
        if place not in self.lines:
            self.lines[place] = self._pieces(self.texts[place])
        return self.lines[place]

    def _pieces(self, line: str) -> Line:
        """Split a line. Only numbers, texts, tables and declared variables are tokens."""
        between, tokens, end = [], [], 0
        fixed = FIXED.search(line) is not None
        for match in TOKEN.finditer(line):
            kind = str(match.lastgroup)
            if kind == "name" and match[0] in self.declared:
                kind = "variable"
            elif fixed or kind not in TYPES:
                continue
            between.append(line[end : match.start()])
            tokens.append((kind, match[0]))
            end = match.end()
        return Line((*between, line[end:]), tuple(tokens))

    def run(self) -> list[str]:
        """Return all lines, with loops."""
        written: list[str] = []
        place = 0
        while place < len(self.texts):
            found = self._loop_at(place)
            if found is None:
                written.append(self.texts[place])
                place += 1
            else:
                written += found[0]
                place = found[1]
        return written

    def _loop_at(self, start: int) -> tuple[list[str], int] | None:
        """Return the loop over the lines from ``start`` on, and the place behind these lines; None if they do not repeat."""
        same, forms = self.places[self.forms[start]], self.forms
        following = bisect_right(same, start)
        if len(same) - following < MIN_REPETITIONS - 1:
            return None
        for other in same[following : following + MAX_TRIALS]:
            period = other - start
            least = start + (MIN_REPETITIONS - 1) * period
            if least >= len(forms):
                return None
            if forms[least] != forms[start]:
                continue
            if forms[start:other] != forms[other : other + period] or not self._is_closed(start, period):
                continue
            count = self._usable(start, period)
            if count >= MIN_REPETITIONS and count * period >= MIN_LINES:
                return self._written(start, period, count), start + count * period
        return None

    def _is_closed(self, start: int, period: int) -> bool:
        """Whether the lines of the first repetition open and close the same blocks."""
        depth = 0
        for place in range(start, start + period):
            change, least = self._braces(place)
            if depth + least < 0:
                return False
            depth += change
        return depth == 0

    def _braces(self, place: int) -> tuple[int, int]:
        """Return how many blocks a line opens, less those that it closes, and the least such number within the line."""
        form = self.forms[place]
        if form not in self.braces:
            depths = [0]
            for character in re.sub(r"[^{}]", "", TOKEN.sub("", self.texts[place])):
                depths.append(depths[-1] + (1 if character == "{" else -1))
            self.braces[form] = depths[-1], min(depths)
        return self.braces[form]

    def _usable(self, start: int, period: int) -> int:
        """Return how many repetitions from the first on may share a loop."""
        forms, scope = self.forms[start : start + period], self._scope(start, period)
        count = 0 if scope is None else 1
        if count:
            while (
                self.forms[(place := start + count * period) : place + period] == forms
                and self._scope(place, period) == scope
            ):
                count += 1
        return count

    def _scope(self, start: int, period: int) -> tuple[object, ...] | None:
        """Return the variables of a repetition: its own by their places of declaration, others by name.

        None if other lines use one of its own.
        """
        end = start + period
        scope: list[object] = []
        for line in map(self.line, range(start, end)):
            for kind, token in line.tokens:
                if kind != "variable":
                    continue
                place = self.declared[token]
                own = start <= place < end
                if own and self.last_use[token] >= end:
                    return None
                scope.append(place - start if own else token)
        return tuple(scope)

    def _written(self, start: int, period: int, count: int) -> list[str]:
        """Return the lines of the loop, with its tables in front."""
        tables: dict[tuple[str, ...], str] = {}
        body = []
        for place in range(start, start + period):
            rows = [self.line(place + number * period).tokens for number in range(count)]
            tokens = []
            for column in zip(*rows, strict=True):
                kind, values = column[0][0], tuple([token for _, token in column])
                tokens.append(values[0] if kind == "variable" else _value(kind, values, tables))
            body.append(self.line(place).printed(tokens))
        declarations = [
            f"static {TYPES[kind]} {name}[] = {{{', '.join(values)}}};"
            for (kind, *values), name in tables.items()
        ]
        head = f"for (int64_t {INDEX} = 0; {INDEX} < {count}; {INDEX}++) {{"
        return ["{", *declarations, head, *body, "} }"]


def _value(kind: str, values: tuple[str, ...], tables: dict[tuple[str, ...], str]) -> str:
    """Return the C expression of a token that has the text ``values[k]`` in repetition k; ``tables`` gets a table for it."""
    if len(set(values)) == 1:
        return values[0]
    if kind == "number":
        numbers = [int(value) for value in values]
        steps = {later - number for number, later in pairwise(numbers)}
        if len(steps) == 1:
            return f"({numbers[0]} + {steps.pop()} * {INDEX})"
    return f"{tables.setdefault((kind, *values), f'fx_column_{len(tables)}')}[{INDEX}]"
