"""Run a function plainly and compiled on equal inputs, and compare what comes back and what was done to the inputs."""

import warnings

from same import difference

from fxstack_capture import optimize
from fxstack_capture.driver.errors import TracingWarning


class Breaks:
    """An observer that keeps the ids of graph breaks."""

    def __init__(self):
        self.ids = []

    def on_trace(self, seconds):
        pass

    def on_break(self, record):
        self.ids.append(record.reason.id)


def run(fn, args):
    try:
        return "returned", fn(*args), args
    except Exception as error:
        return "raised", error, args


def breaks_beside_plain(fn, make_args, calls=2):
    """The ids of the graph breaks of ``fn``; fails unless it does what plain Python does, on every call."""
    watch = Breaks()
    compiled = optimize(observer=watch)(fn)
    for _ in range(calls):
        expected = run(fn, make_args())
        with warnings.catch_warnings():
            warnings.simplefilter("error", TracingWarning)
            found = run(compiled, make_args())
        text = difference(expected, found)
        assert text is None, text
    return watch.ids
