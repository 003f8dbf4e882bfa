"""Make a program that differs smaller: leave out statements while it differs in the same way."""

from __future__ import annotations

import re
from collections.abc import Callable

from random_nests.running import Outcome
from random_nests.writer import Program


def _words(text: str) -> str:
    """``text`` without names of variables, numbers and what stands in brackets."""
    return re.sub(r"(f|flat_\w+)?\d[\d.e+-]*|\[.*?\]|\(.*?\)|program[.\w<>]*", "", text)[:90]


def kind_of(outcome: Outcome) -> str | None:
    """Words by which one recognises what is wrong with ``outcome`` in that of a smaller program; None if nothing is."""
    if outcome.difference is not None:
        return "differs " + _words(outcome.difference)
    return None if outcome.refused is None else "refused " + "".join(map(_words, outcome.breaks[:1]))


def shrink(program: Program, kind: str, check: Callable[[Program], Outcome], tries: int = 60) -> int:
    """Change ``program`` to a smaller one whose outcome is of ``kind``; return how many programs ran."""
    done, changed = 0, True
    while changed and done < tries:
        changed = False
        for statements in list(program.function.bodies()):
            for index in reversed(range(len(statements))):
                removed = statements.pop(index)
                done += 1
                if kind_of(check(program)) == kind:
                    changed = True
                else:
                    statements.insert(index, removed)
                if done >= tries:
                    return done
    return done
