"""Run a program plainly and compiled, and compare results, exceptions, arguments, module state and output.

``sweeps/programs.py`` does so for many seeds.
"""

import linecache

import torch
from programs import program
from same import difference

import fxstack_capture


def load(source, name):
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    scope = {"__name__": name}
    exec(compile(source, name, "exec"), scope)
    return scope


def arguments(scope, call):
    g = torch.Generator().manual_seed(call)
    items = [torch.randn(3, generator=g), call, "s"]
    table = {"k": torch.randn(3, generator=g), 1: [1, 2]}
    box = scope["Small" if call % 2 else "Box"](torch.randn(3, generator=g))
    x = torch.randn(3, generator=g)
    return [x, x if call == 3 else torch.randn(3, generator=g), call, items, table, box]


def error_alone(error):
    return (error,)


def observe(scope, fn, calls, raised=error_alone):
    """What each call does, ``raised`` being what is to be compared of an exception."""
    seen = []
    for call in calls:
        args = arguments(scope, call)
        try:
            outcome = "returned", fn(*args)
        except Exception as error:
            outcome = "raised", *raised(error)
        state = scope["STATE"], scope["COUNT"], scope["Box"].total, scope["OUT"].getvalue()
        seen.append((outcome, args, state, torch.is_grad_enabled()))
        torch.set_grad_enabled(True)
    return seen


def compare(seed, breaks=True, calls=(0, 0, 1, 3), write=program):
    """None when compiled and plain agree, else what differs; ``write`` makes the program."""
    source = write(seed, breaks)
    plain, compiled = load(source, f"<plain {seed}>"), load(source, "<string>")
    expected = observe(plain, plain["f"], calls)
    fn = fxstack_capture.optimize()(compiled["f"])
    found = observe(compiled, fn, calls)
    return difference(expected, found)
