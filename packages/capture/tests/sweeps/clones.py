# ruff: noqa: E501
"""Run CPython's own tests with every function frame replaced by a clone of itself, and compare with CPython.

    python packages/capture/tests/sweeps/clones.py [--intercept] [test_list test_dict ...]

Tests that look for code objects by identity (test_sys_settrace) are left out. Each module runs twice in processes of its own: plainly, and in compile mode with a callback that answers every
frame with an entry whose code is a larger copy of the original. With ``--intercept`` the first call of
every function comes back through intercept mode instead and is made for real from there. Outcomes of all
test methods must be the same. Needs no torch: run it with a bare Python for which the extension was built.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import types
import unittest
from pathlib import Path

PACKAGE = Path(importlib.util.find_spec("fxstack_capture").origin).parent

MODULES = """
test_list test_dict test_set test_tuple test_deque test_defaultdict test_ordered_dict test_collections
test_generators test_exceptions test_raise test_with test_contextlib test_functools test_itertools test_operator
test_iter test_sort test_enumerate test_property test_descr test_class test_super test_scope test_patma
test_dataclasses test_enum test_listcomps test_unpack test_unpack_ex test_userdict test_userlist test_heapq
test_named_expressions test_keywordonlyarg test_positional_only_arg test_except_star test_yield_from test_genexps
test_extcall test_decorators test_call test_funcattrs test_copy test_abc test_traceback
test_inspect test_typing test_threading test_gc test_coroutines test_asyncgen test_frame test_code test_slots
""".split()

EXPECTED = {
    "test_gc": "counts objects and collections",
    "test_slots": "counts objects",
    "test_call": "test_super_deep needs more C stack than a thread has when calls are not inlined",
    "test_contextlib": "intercepted: the callback's frame is in a traceback",
    "test_functools": "intercepted, 3.13: recursion goes deeper than CPython's fixed C limit (test_lru_recursion)",
    "test_descr": "counts objects (test_slots)",
    "test_threading": "recursion limits and traces of thread start",
}
"""Modules where a difference is known and why."""


class Outcomes(unittest.TestResult):
    """Test id -> what happened."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: dict[str, str] = {}

    def addSuccess(self, test):
        self.outcomes.setdefault(test.id(), "ok")

    def addError(self, test, err):
        self.outcomes[test.id()] = f"error {err[0].__name__}"

    def addFailure(self, test, err):
        self.outcomes[test.id()] = "failure"

    def addSkip(self, test, reason):
        self.outcomes[test.id()] = "skipped"

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.outcomes[test.id()] = f"error {err[0].__name__}"


def run_suite(name: str, run) -> dict[str, str]:
    suite = unittest.defaultTestLoader.loadTestsFromName(f"test.{name}")
    result = Outcomes()
    run(suite, result)
    return result.outcomes


def load_native():
    package = types.ModuleType("fxstack_capture")
    package.__path__ = [str(PACKAGE)]
    sys.modules["fxstack_capture"] = package
    from fxstack_capture import native

    if not native.AVAILABLE:
        raise SystemExit(native.WHY_MISSING)
    return native


def with_clones(native):
    """run(suite, result) with every eligible frame replaced; returns it and the list of hits."""
    owner = native.Owner()
    clones: dict[types.CodeType, object] = {}

    def callback(func, code, local_values, cells):
        clone = code.replace(co_stacksize=code.co_stacksize + 7, co_consts=(*code.co_consts, "fxstack clone"))
        entry = native.Entry(owner, None, clone)
        clones[code] = entry
        return entry

    def run(suite, result):
        native.run_with(callback, owner, suite, (result,))

    return run, lambda: sum(entry.hits for entry in clones.values())


def with_intercepts(native):
    """Every test method's frames come back to a callback, which makes the call for real, still intercepted."""
    calls = [0]

    def callback(func, args, kwargs):
        calls[0] += 1
        native.never_intercept(func.__code__)  # its own frame runs now; what it calls comes back here
        return native.intercept(callback, func, args, kwargs)

    def run(suite, result):
        for test in suite:
            if isinstance(test, unittest.TestSuite):
                run(test, result)
            else:
                native.intercept(callback, test, (result,))

    return run, lambda: calls[0]


def child(name: str, how: str) -> None:
    hits = lambda: 0  # noqa: E731
    run = lambda suite, result: suite(result)  # noqa: E731
    if how != "plain":
        native = load_native()
        run, hits = (with_clones if how == "clones" else with_intercepts)(native)
    outcomes = run_suite(name, run)
    print("\n@@@" + json.dumps({"outcomes": outcomes, "hits": hits()}))


def outcomes_of(name: str, how: str) -> dict:
    command = [sys.executable, __file__, "--child", how, name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=150, errors="replace")
    except subprocess.TimeoutExpired:
        return {"outcomes": {"*": "timeout"}, "hits": 0}
    _noise, mark, report = done.stdout.rpartition("\n@@@")
    if not mark:
        return {"outcomes": {"*": f"process ended with {done.returncode}: {done.stderr[-300:]}"}, "hits": 0}
    return json.loads(report)


def compare(name: str, how: str) -> tuple[int, int, list[str]]:
    plain, replaced = outcomes_of(name, "plain"), outcomes_of(name, how)
    before, after = plain["outcomes"], replaced["outcomes"]
    changed = [
        f"{test}: {before.get(test)} -> {after.get(test)}"
        for test in sorted({*before, *after})
        if before.get(test) != after.get(test)
    ]
    return len(before), replaced["hits"], changed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", default=MODULES)
    parser.add_argument("--intercept", action="store_true")
    parser.add_argument("--child", choices=["plain", "clones", "intercept"])
    options = parser.parse_args()
    if options.child:
        child(options.modules[0], options.child)
        return 0
    how = "intercept" if options.intercept else "clones"
    bad = total = 0
    for name in options.modules:
        tests, hits, changed = compare(name, how)
        total += hits
        note = f" (known: {EXPECTED[name]})" if changed and name in EXPECTED else ""
        print(f"{name:28s} {tests:5d} tests {hits:9d} frames {len(changed):3d} different{note}", flush=True)
        for line in changed:
            print("    " + line)
        bad += bool(changed) and name not in EXPECTED
    print(f"{total} frames, {bad} modules differ")
    return bool(bad)


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["test_bisect"]
    sys.exit(main())
