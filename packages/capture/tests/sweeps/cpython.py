"""Run methods of CPython's own test suite through the interpreter, and compare with CPython.

    python packages/capture/tests/sweeps/cpython.py [--verbose] [--real] [test_list test_dict ...]

Every test method of the modules is run twice: by CPython, and with its body (and everything that it
calls in Python, through the interpreter's own calls) interpreted with plain siblings. The outcomes
must be the same. Needs no torch, so that it also runs in bare installations of other Python
versions.
"""

from __future__ import annotations

import argparse
import builtins
import doctest
import faulthandler
import importlib
import io
import signal
import sys
import time
import traceback
import types
import unittest
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1] / "interpreter"), str(HERE.parents[2] / "src")]

REAL = "--real" in sys.argv
if REAL:
    sys.path.insert(0, str(HERE.parents[1] / "world"))
else:
    # The interpreter alone, without the package's public face, which needs torch.
    package = types.ModuleType("fxstack_capture")
    package.__path__ = [str(HERE.parents[2] / "src" / "fxstack_capture")]
    sys.modules["fxstack_capture"] = package

from plain import interpreter  # noqa: E402

from fxstack_capture.breaks import GraphBreak  # noqa: E402
from fxstack_capture.versions import program_table  # noqa: E402

MODULES = """
 test_list test_dict test_set test_tuple test_deque test_defaultdict test_ordered_dict
test_collections test_generators test_exceptions test_raise test_with test_contextlib
test_functools test_itertools test_operator test_math test_float test_int test_complex test_bool
test_str test_iter test_sort test_range test_enumerate test_property test_descr test_class
test_super test_scope test_patma test_dataclasses test_enum test_listcomps test_unpack
test_unpack_ex test_userdict test_userlist test_heapq test_bisect test_named_expressions
test_keywordonlyarg test_positional_only_arg test_exception_group test_except_star test_yield_from
test_genexps test_extcall test_augassign test_decorators test_fstring test_slice test_binop
test_compare test_contains test_metaclass test_subclassinit test_abc test_typechecks
test_dynamicclassattribute test_copy test_reprlib test_string test_textwrap test_statistics
test_fractions test_weakref test_generator_stop test_global test_grammar test_syntax test_setcomps
test_dictcomps test_dictviews test_userstring test_bytes test_types test_call test_funcattrs
test_opcodes test_pow test_index test_long test_graphlib test_configparser test_json test_pprint
test_inspect test_typing test_string_literals test_builtin test_exception_variations
test_baseexception test_isinstance test_lambda test_module test_numeric_tower test_random test_re
test_richcmp test_shlex test_structseq test_traceback test_coroutines test_asyncgen
test_type_annotations test_type_params test_type_aliases test_urlparse test_zipfile test_csv
test_datetime test_decimal test_difflib test_ipaddress test_calendar test_argparse test_ast
""".split()
"""Modules that do not exist in a version are passed over."""

DEFAULT = MODULES[: MODULES.index("test_weakref") + 1]
SECONDS = 20


class TimedOut(BaseException):
    pass


def _alarm(_signum, _frame):
    raise TimedOut


def cases(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from cases(item)
        else:
            yield item


def outcome(case, run):
    """(kind, detail) of one test method."""
    stream = io.StringIO()
    before = dict(vars(builtins))
    signal.alarm(SECONDS)
    try:
        with redirect_stdout(stream), redirect_stderr(stream):
            case.setUp()
            try:
                run()
            finally:
                case.tearDown()
                case.doCleanups()
    except unittest.SkipTest:
        return "skip", "", None
    except TimedOut as error:
        return "timeout", "", error
    except GraphBreak as error:
        return "break", f"{error.record.reason.id}: {error.record.detail}", error
    except BaseException as error:
        return "raised", f"{type(error).__name__}: {str(error)[:300]}", error
    finally:
        signal.alarm(0)
        vars(builtins).update(before)
    return "ok", "", None


def fresh(case):
    return type(case)(case._testMethodName)


def call_with(function, case):
    """The root frame: ``function`` may take any parameters."""
    return function(case)


def interpret(function, case, programs):
    """Run a test function in the interpreter."""
    if REAL:
        from tracing import trace_call

        return trace_call(call_with, function, case).value
    return interpreter(programs).call_function(function, (case,), {})


def compare(case, programs, counts, verbose):
    method = getattr(case, case._testMethodName)
    function = getattr(method, "__func__", None)
    if not isinstance(function, types.FunctionType) or function.__code__.co_flags & 0x280:
        return
    expected = outcome(case, method)
    if expected[0] in ("skip", "timeout"):
        return
    again = fresh(case)
    actual = outcome(again, lambda: interpret(function, again, programs))
    if actual[0] == "break":
        counts["break"] = counts.get("break", 0) + 1
        key = ("break", actual[1])
        counts[key] = counts.get(key, 0) + 1
        return
    same = expected[:2] == actual[:2]
    counts["same" if same else "different"] = counts.get("same" if same else "different", 0) + 1
    if not same:
        print(f"  {case.id()}\n    cpython:     {expected[:2]}\n    interpreted: {actual[:2]}")
        if verbose and actual[2] is not None:
            traceback.print_exception(actual[2])


def run_module(name, programs, verbose, only):
    try:
        module = importlib.import_module(f"test.{name}")
    except (ImportError, unittest.SkipTest):
        return {}
    counts: dict = {}
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    seen = set()
    for case in cases(suite):
        cls = type(case)
        if cls not in seen:
            seen.add(cls)
            try:
                cls.setUpClass()
            except BaseException:
                continue
        if not hasattr(case, "_testMethodName") or isinstance(case, unittest.loader._FailedTest):
            continue
        if isinstance(case, doctest.DocTestCase) or (only and only not in case.id()):
            continue
        compare(case, programs, counts, verbose)
    return counts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--breaks", action="store_true", help="list the reasons of graph breaks")
    parser.add_argument("--real", action="store_true", help="with the real world and calls")
    parser.add_argument("--only", help="substring of the test's id")
    options = parser.parse_args()
    faulthandler.enable()
    signal.signal(signal.SIGALRM, _alarm)
    sys.setrecursionlimit(20_000)
    programs = program_table()
    total: dict = {}
    start = time.perf_counter()
    for name in options.modules or DEFAULT:
        counts = run_module(name, programs, options.verbose, options.only)
        shown = {key: value for key, value in counts.items() if isinstance(key, str)}
        print(f"{name}: {shown}", flush=True)
        for key, value in counts.items():
            total[key] = total.get(key, 0) + value
    print({key: value for key, value in total.items() if isinstance(key, str)})
    if options.breaks:
        for key, value in sorted(total.items(), key=lambda item: -item[1]):
            if not isinstance(key, str):
                print(value, key[1])
    print(f"{time.perf_counter() - start:.0f} s")
    return 1 if total.get("different") else 0


if __name__ == "__main__":
    sys.exit(main())
