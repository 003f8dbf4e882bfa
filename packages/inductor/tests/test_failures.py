"""Defects of this package: one warning at the user's line, and ATen's operators run the graph."""

import re
import warnings
from dataclasses import replace

import pytest
import torch
from inductor_checks import FAST, copies, trace

import fxstack_inductor as fi
from fxstack_inductor.codegen.c import module as c
from fxstack_inductor.codegen.c.threads import KERNEL
from fxstack_inductor.errors import CompilerKilledError, first_error
from fxstack_inductor.lower import passes
from fxstack_inductor.lower.rules import RULES
from fxstack_inductor.runtime.toolchain import Toolchain

X = torch.randn(4, 5)
SIN = torch.ops.aten.sin.default


def program(x):
    y = x @ x.t()
    return (y.sin() + 1).sum(1)


def rejected(kernel, grain):
    """A function that no C compiler takes."""
    return f"void {KERNEL}(void) {{\n  int twice = 1;\n  int twice = 2;\n}}"


def broken_rule(*_):
    raise LookupError("no such rule")


def broken_plan(*_, **__):
    raise AssertionError("fusion made a cycle")


def broken_kernel(*_, **__):
    raise ZeroDivisionError


def traced(fn, *inputs):
    """A graph of ``fn``, each node of which has a line of its own."""
    graph = trace(fn, *inputs)
    for number, node in enumerate(graph.graph.nodes, 100):
        node.meta["stack_trace"] = f'  File "user.py", line {number}, in program\n    {node.name}\n'
    return graph


def line_of(graph, target):
    names = [str(node.target) for node in graph.graph.nodes]
    return 100 + next(k for k, name in enumerate(names) if name == target)


def compiled(graph, options=FAST, **given):
    """What is compiled, which failures it told, and which warnings."""
    failures = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call = fi.compile_graph(graph, (), options, on_failure=failures.append, **given)
    return call, failures, caught


BREAKS = {
    "C": (c, "function_text", rejected),
    "plan": ("fxstack_inductor.targets.c.lower.plan", None, broken_plan),
    "kernel": ("fxstack_inductor.schedule.plan.build_kernel", None, broken_kernel),
    "host": ("fxstack_inductor.targets.c.lower.native_program", None, broken_kernel),
    "link": ("fxstack_inductor.targets.c.load.link", None, broken_plan),
}


def break_it(monkeypatch, name):
    where, attribute, by = BREAKS[name]
    monkeypatch.setattr(*((where, by) if attribute is None else (where, attribute, by)))


@pytest.mark.parametrize("name", BREAKS)
@pytest.mark.parametrize("use_cache", [True, False])
def test_aten_runs_the_graph_after_one_warning(name, use_cache, monkeypatch, tmp_path):
    break_it(monkeypatch, name)
    options = replace(FAST, use_cache=use_cache, cache_dir=tmp_path)
    call, failures, caught = compiled(traced(program, X), options)
    torch.testing.assert_close(call(X)[0], program(X))
    assert [str(w.message) for w in caught] == [f.message for f in failures]
    assert len(failures) == 1
    assert (caught[0].filename, caught[0].lineno) == (failures[0].file, failures[0].line)
    assert failures[0].file == "user.py"
    assert "This is a defect of fxstack: ATen's operators run the graph." in failures[0].message
    assert not list(tmp_path.glob("??/*"))


@pytest.mark.parametrize("name", BREAKS)
def test_exceptions_are_raised_where_that_is_asked_for(name, monkeypatch):
    break_it(monkeypatch, name)
    for options, tell in ((FAST, None), (replace(FAST, raise_failures=True), print)):
        with pytest.raises((fi.CompilerFailedError, AssertionError, ZeroDivisionError)):
            fi.compile_graph(trace(program, X), (), options, on_failure=tell)


def test_words_about_rejected_code(monkeypatch):
    break_it(monkeypatch, "C")
    graph = traced(program, X)
    (failure,) = compiled(graph)[1]
    assert re.fullmatch(
        r"fxstack: the C compiler rejected the generated code \(kernels\.c:\d+:\d+: error: redefinition of .twice.\)\. This is a "
        r"defect of fxstack: ATen's operators run the graph\. Please report it with the script that "
        r"options=\{'repro_dir': 'FOLDER'\} or FXSTACK_REPRO_DIR=FOLDER in the environment writes for each graph\.",
        failure.message,
    )
    assert failure.line in {line_of(graph, f"aten.{op}") for op in OF_KERNEL}


OF_KERNEL = ("sin.default", "add.Tensor", "sum.dim_IntList")


def test_the_script_is_named_where_one_is_written(monkeypatch, tmp_path):
    break_it(monkeypatch, "C")
    (failure,) = compiled(traced(program, X), replace(FAST, repro_dir=tmp_path))[1]
    assert failure.message.endswith(f"Please report it with the script {tmp_path}/graph_0.py.")


def test_words_about_an_exception(monkeypatch):
    break_it(monkeypatch, "plan")
    (failure,) = compiled(traced(program, X))[1]
    assert failure.message == (
        "fxstack: compiling a graph failed with AssertionError: fusion made a cycle. This is a defect of fxstack: ATen's "
        "operators run the graph. Please report it with the program, and the traceback that FXSTACK_RAISE_FAILURES=1 in "
        "the environment gives."
    )


def test_the_line_is_that_of_the_kernel_which_fails(monkeypatch):
    break_it(monkeypatch, "kernel")
    graph = traced(program, X)
    (failure,) = compiled(graph)[1]
    assert failure.error == "ZeroDivisionError"
    assert failure.line in {line_of(graph, f"aten.{op}") for op in OF_KERNEL}


def test_a_rule_that_fails_costs_one_operator(monkeypatch):
    monkeypatch.setattr(passes, "RULES", {**RULES, SIN: broken_rule})
    graph = traced(program, X)
    call, failures, caught = compiled(graph)
    torch.testing.assert_close(call(X)[0], program(X))
    (failure,) = failures
    assert len(caught) == 1
    assert (failure.node, failure.line) == ("sin", line_of(graph, "aten.sin.default"))
    assert failure.message.startswith(
        "fxstack: lowering aten.sin.default failed with LookupError('no such rule'). This is a defect of fxstack: ATen runs "
        "this operator."
    )
    with pytest.raises(LookupError, match="no such rule"):
        fi.compile_graph(graph, (), replace(FAST, raise_failures=True))


def test_a_compiler_that_is_killed_is_no_defect(monkeypatch):
    def killed(self, *_):
        raise CompilerKilledError("gcc was killed", "gcc was killed by signal 9")

    monkeypatch.setattr(Toolchain, "compile", killed)
    call, (failure,), _ = compiled(traced(program, X))
    assert failure.message == "fxstack: gcc was killed by signal 9. ATen's operators run this graph."
    torch.testing.assert_close(call(X)[0], program(X))


def test_inputs_are_changed_as_before(monkeypatch):
    break_it(monkeypatch, "C")
    change = lambda x: (x.add_(1), x.sum())[1]
    call = compiled(trace(change, X))[0]
    (got,), (wanted,) = copies([X]), copies([X])
    results = call(got)
    assert torch.equal(results[0], change(wanted))
    assert torch.equal(got, wanted)


@pytest.mark.parametrize("boxed", [False, True])
def test_how_the_fallback_is_called_is_said_by_its_mark(boxed, monkeypatch):
    break_it(monkeypatch, "C")
    call = compiled(trace(program, X), boxed=boxed)[0]
    assert not getattr(call, "boxed", False)
    torch.testing.assert_close(call(X)[0], program(X))


def test_what_the_machine_lacks_is_raised_all_the_same(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(fi.NoCompilerError):
        fi.compile_graph(trace(program, X), (), FAST, on_failure=print)


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("k.c: In function 'f':\n/tmp/a/kernels.c:3:4: error: no\n  3 | x", "kernels.c:3:4: error: no"),
        ("kernels.c:3:4: fatal error: no\n", "kernels.c:3:4: fatal error: no"),
        ("ld: cannot find -lmvec\ncollect2: error: ld returned 1", "collect2: error: ld returned 1"),
        ("something\nelse\n", "else"),
        ("", ""),
    ],
)
def test_the_first_error_of_a_compilers_output(output, line):
    assert first_error(output) == line


def test_the_environment_asks_for_exceptions():
    assert fi.options_from_environment({"FXSTACK_RAISE_FAILURES": "1"}).raise_failures
    assert not fi.options_from_environment({"FXSTACK_RAISE_FAILURES": "0"}).raise_failures
