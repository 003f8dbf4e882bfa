"""Make a program that differs smaller: leave out statements for as long as it still differs in the same way."""

from __future__ import annotations

import re
from collections.abc import Callable

from random_nests.running import Outcome
from random_nests.writer import Program


def kind_of(difference: str) -> str:
    """The words of a difference without names and numbers, to recognise it in a smaller program."""
    return re.sub(r"[a-z]?\d[\d.e+-]*|\[.*?\]|\(.*?\)", "", difference)[:60]


def shrink(program: Program, kind: str, check: Callable[[Program], Outcome], tries: int = 60) -> int:
    """Change ``program`` to a smaller one whose difference is of ``kind``; return how many programs ran."""
    done, changed = 0, True
    while changed and done < tries:
        changed = False
        for statements in list(program.function.bodies()):
            for index in reversed(range(len(statements))):
                removed = statements.pop(index)
                done += 1
                found = check(program).difference
                if found is not None and kind_of(found) == kind:
                    changed = True
                else:
                    statements.insert(index, removed)
                if done >= tries:
                    return done
    return done
