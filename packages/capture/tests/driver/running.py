"""Run a function plainly and optimised: results, exceptions with their tracebacks, and output must be the same."""

import contextlib
import copy
import traceback

import torch
from same import OwnStream, difference

import fxstack_capture as fx


class Graphs(list):
    """A backend that keeps the graphs that it is given, and runs them as they are."""

    def __call__(self, graph_module, _):
        self.append(graph_module)
        return graph_module.forward


def lines_of(error):
    """(function, line) of the program's frames in a traceback."""
    entries = traceback.extract_tb(error.__traceback__)
    return [(e.name, e.lineno) for e in entries if e.name not in ("outcome", "observe")]


def observe(fn, args):
    """What one can see of a call."""
    torch.manual_seed(0)
    args = copy.deepcopy(args)
    out = OwnStream()
    with contextlib.redirect_stdout(out):
        try:
            seen = ("returned", fn(*args))
        except Exception as error:
            seen = ("raised", error, lines_of(error))
    return seen, args, out.getvalue()


def check(fn, *args, graphs=None, calls=3, **options):
    """Optimised equals plain in every one of ``calls`` calls; ``graphs``: how many are compiled in all of them."""
    backend = Graphs()
    optimised = fx.optimize(backend, **options)(fn)
    expected = observe(fn, args)
    for _ in range(calls):
        seen = observe(optimised, args)
        assert difference(seen, expected) is None, (difference(seen, expected), seen, expected)
    if graphs is not None:
        assert len(backend) == graphs, [graph.code for graph in backend]
    return backend
