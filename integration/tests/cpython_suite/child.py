"""Run the methods of one of CPython's own test modules plainly and captured; one JSON line a method on stdout.

    python child.py test_list [--only SUBSTRING] [--trace]

Every method runs inside of a small function that also adds two tensors, so that there is a graph to capture and the
replacement is really run. The module is imported through a link outside of the standard library, whose frames the
compiler would leave alone.
"""

import argparse
import doctest
import faulthandler
import importlib
import io
import json
import os
import signal
import sys
import tempfile
import time
import traceback
import types
import unittest
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import torch
from modules import INCOMPARABLE

import fxstack_capture
from fxstack_capture.driver.compiler import FrameCompiler

SECONDS = 20
TIMER = signal.ITIMER_PROF  # of processor time: the outcome is no matter of what else runs
NOT_METHODS = (unittest.loader._FailedTest, doctest.DocTestCase)
ASYNCHRONOUS = 0x280  # CO_COROUTINE | CO_ASYNC_GENERATOR


class TimedOut(BaseException):
    """A method took more than ``SECONDS`` of processor time."""


def _alarm(_signum, _frame):
    raise TimedOut


class Watch:
    """What the compiler did during one method."""

    def __init__(self):
        self.graphs = 0
        self.breaks = []
        self.defects = []

    def backend(self, graph_module, _inputs):
        self.graphs += 1
        return graph_module.forward

    def on_trace(self, seconds):
        pass

    def on_break(self, record):
        place = record.stack[-1] if record.stack else ("?", 0, "?")
        self.breaks.append([record.reason.id, record.detail, f"{place[2]} ({place[0]}:{place[1]})"])


def report_defects(watch, trace):
    """Let internal errors be noted: programs may hide the warning about them."""
    original = FrameCompiler._failed

    def failed(self, code, error):
        place = traceback.extract_tb(error.__traceback__)[-1:]
        where = "".join(f" at {f.filename.rpartition('/')[2]}:{f.lineno}" for f in place)
        watch[0].defects.append(f"{code.co_qualname}: {type(error).__name__}: {error}{where}")
        if trace:
            traceback.print_exception(error)
        return original(self, code, error)

    FrameCompiler._failed = failed


def under_capture(function, case, x):
    y = x + 1
    function(case)
    return y * 2


def outcome(case, run):
    """(kind, detail) of one method, with its set-up and tear-down."""
    stream = io.StringIO()
    signal.setitimer(TIMER, SECONDS, 1)  # again: tracing takes it for the program's
    try:
        with redirect_stdout(stream), redirect_stderr(stream):
            case.setUp()
            try:
                run()
            finally:
                case.tearDown()
                case.doCleanups()
    except unittest.SkipTest:
        return ["skip", ""], None
    except TimedOut as error:
        return ["timeout", ""], error
    except BaseException as error:
        return ["raised", f"{type(error).__name__}: {str(error)[:300]}"], error
    finally:
        signal.setitimer(TIMER, 0)
    return ["ok", ""], None


def plainly(case):
    case = fresh(case)
    return outcome(case, getattr(case, case._testMethodName))[0]


def captured(case, function, watch):
    x = torch.ones(3)
    run = fxstack_capture.optimize(watch.backend, observer=watch)(under_capture)
    result = run(function, case, x)
    assert torch.equal(result, torch.full((3,), 4.0)), f"the tensors' result is {result}"


def examine(case, watches, trace):
    """The record of one method, or None for what is not a plain Python method."""
    method = getattr(case, case._testMethodName)
    function = getattr(method, "__func__", None)
    if not isinstance(function, types.FunctionType) or function.__code__.co_flags & ASYNCHRONOUS:
        return None
    expected = plainly(case)
    if expected[0] in ("skip", "timeout"):
        return None
    watch = watches[0] = Watch()
    again = fresh(case)
    started = time.perf_counter()
    actual, error = outcome(again, lambda: captured(again, function, watch))
    seconds = time.perf_counter() - started
    fxstack_capture.reset()
    stable = actual == expected or plainly(case) == expected
    if actual != expected and trace and error is not None:
        traceback.print_exception(error)
    return {
        "id": case.id(),
        "expected": expected,
        "actual": actual,
        "stable": stable,
        "whole": watch.graphs == 1 and not watch.breaks and not watch.defects,
        "graphs": watch.graphs,
        "breaks": watch.breaks,
        "defects": watch.defects,
        "seconds": round(seconds, 3),
    }


def fresh(case):
    return type(case)(case._testMethodName)


def cases(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from cases(item)
        elif hasattr(item, "_testMethodName") and not isinstance(item, NOT_METHODS):
            yield item


def chosen_cases(options):
    try:
        module = importlib.import_module(f"test.{options.module}")
    except (ImportError, unittest.SkipTest):
        return []
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    part, parts = map(int, options.share.split("/"))
    return [case for case in list(cases(suite))[part::parts] if _wanted(case, options)]


def _wanted(case, options):
    if case._testMethodName in INCOMPARABLE or case.id() in options.skip:
        return False
    return not options.only or any(text in case.id() for text in options.only)


def run_module(options):
    watches = [Watch()]
    report_defects(watches, options.trace)
    prepared = {}
    for case in chosen_cases(options):
        cls = type(case)
        if cls not in prepared:
            prepared[cls] = _set_up_class(cls)
        if not prepared[cls]:
            continue
        print(json.dumps({"begin": case.id()}), file=sys.__stdout__, flush=True)
        record = examine(case, watches, options.trace)
        if record is not None:
            print(json.dumps(record), file=sys.__stdout__, flush=True)


def _set_up_class(cls):
    try:
        cls.setUpClass()
    except BaseException:
        return False
    return True


def link_suite(folder):
    """Make the installed ``test`` package importable from outside of the standard library."""
    home = Path(os.__file__).parent / "test"
    (Path(folder) / "test").symlink_to(home)
    sys.path.insert(0, folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("--only", action="append", help="substring of the method's id")
    parser.add_argument("--share", default="0/1", help="every n-th method: FIRST/N")
    parser.add_argument("--skip", action="append", default=[], help="a method's id")
    parser.add_argument("--trace", action="store_true", help="print tracebacks")
    options = parser.parse_args()
    faulthandler.enable()
    signal.signal(signal.SIGPROF, _alarm)
    with tempfile.TemporaryDirectory() as folder:
        link_suite(folder)
        run_module(options)


if __name__ == "__main__":
    main()
