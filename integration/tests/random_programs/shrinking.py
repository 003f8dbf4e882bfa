"""Cuts a failing program down while it fails in the same way, and prints what is left as a script that runs alone."""

from __future__ import annotations

import ast
import time
from typing import TYPE_CHECKING

from .running import Outcome, check_program
from .tree import Node, bodies

if TYPE_CHECKING:
    from collections.abc import Callable

    from .writer import Program


def kind(outcome: Outcome) -> str:
    """How a program fails: the threads and the record of the first difference, without its numbers."""
    text = outcome.differences[0] if outcome.differences else ""
    words = text.split(":")
    return (
        " ".join(word for word in words[1].split()[:2] if not word[:1].isdigit()) if len(words) > 1 else text
    )


def shrink(program: Program, outcome: Outcome, seconds: float, threads: tuple[int, ...]) -> Outcome:
    """Remove statements, clauses and calls of ``program`` (which is changed) while its difference stays."""
    end, wanted = time.monotonic() + seconds, kind(outcome)
    named = outcome.differences[0].split()[0]
    if named.isdigit():
        threads = (int(named),)

    def stays() -> Outcome | None:
        if time.monotonic() > end:
            return None
        found = check_program(program, threads)
        return found if found.differences and kind(found) == wanted else None

    best, changed = outcome, True
    while changed and time.monotonic() < end:
        changed = False
        for body in bodies(program.body)[::-1]:
            at, size = len(body), max(1, len(body) // 2)
            while size:
                at = len(body)
                while at > 0:
                    at = max(0, at - size)
                    found = without(body, at, size, stays)
                    best, changed = (found, True) if found else (best, changed)
                size //= 2
    return plainer(program, best, stays)


def without(body: list[Node], at: int, size: int, stays: Callable[[], Outcome | None]) -> Outcome | None:
    removed = body[at : at + size]
    if not removed or any(node.text.startswith("return") or " -= 1" in node.text for node in removed):
        return None  # a loop that counts down ends by its count
    del body[at : at + size]
    if (found := stays()) is not None:
        return found
    body[at:at] = removed
    inner = [n for node in removed for _, clause in node.clauses for n in clause]
    if len(removed) == 1 and inner:
        # The statements inside of a compound one in its place.
        body[at : at + 1] = inner
        if (found := stays()) is not None:
            return found
        body[at : at + len(inner)] = removed
    return None


def plainer(program: Program, best: Outcome, stays: Callable[[], Outcome | None]) -> Outcome:
    """Fewer calls, no options, no gradients, where the difference stays."""
    inputs = program.inputs
    for name, value in [
        ("calls", 1),
        ("options", {"optimization": 1}),
        ("tensors", [(*t[:3], False) for t in inputs.tensors]),
        ("tensors", [(t[0], t[1], "plain", t[3]) for t in inputs.tensors]),
    ]:
        old = getattr(inputs, name)
        if old == value:
            continue
        setattr(inputs, name, value)
        found = stays()
        if found is None:
            setattr(inputs, name, old)
        best = found or best
    return best


RUN = """
def run(compile_):
    STATE.update(calls=0, list=[])
    made, lasting, shown = compile_(make()), state(), []
    for call in range({calls}):
        torch.manual_seed(call)
        random.seed(call)
        given = arguments(call)
        try:
            result = made(*given, *lasting)
        except Exception as error:
            result = (type(error).__name__, str(error))
        shown.append((result, given, lasting, STATE))
        print(call, *shown[-1])
        # Gradients are compared as Run.backward of observing.py takes them (plan {plan}).
        found = [t for t in (result if isinstance(result, (tuple, list)) else [result]) if torch.is_tensor(t) and t.requires_grad]
        if found:
            sum(t.double().sum() for t in found).backward()
            print([t.grad for t in given if torch.is_tensor(t)])
    return shown


if __name__ == "__main__":
    import fxstack

    torch.set_num_threads({threads})
    run(lambda fn: fn)
    print("compiled")
    run(lambda fn: fxstack.compile(fn, dynamic={dynamic}, options={options}))
"""


def script(program: Program, threads: int) -> str:
    inputs = program.inputs
    fields = {
        "calls": inputs.calls,
        "plan": inputs.noise,
        "threads": threads,
        "dynamic": inputs.dynamic,
        "options": inputs.options,
    }
    return used(program.source() + RUN.format(**fields))


def used(source: str) -> str:
    """``source`` without the functions and classes that it does not name."""
    while True:
        tree = ast.parse(source)
        defined = [n for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
        lines = source.splitlines()
        for node in defined:
            start = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
            rest = lines[:start] + lines[node.end_lineno :]
            words = set("".join(c if c.isalnum() or c == "_" else " " for c in "\n".join(rest)).split())
            if node.name not in words:
                source = "\n".join(rest) + "\n"
                break
        else:
            return source
