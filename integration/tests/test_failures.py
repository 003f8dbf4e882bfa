"""Defects of code generation cost speed, never the program: ATen runs the graph after one warning at the user's line."""

import warnings

import pytest
import torch

import fxstack
from fxstack.torch_interop import backend as torch_backend
from fxstack_inductor.codegen.c import module as c
from fxstack_inductor.codegen.c.threads import KERNEL

X = torch.randn(4, 5)
W = torch.randn(5)


def program(x, w):
    y = x.sin() * w  # the line that is named
    return y.exp().sum(1)


LINE = program.__code__.co_firstlineno + 1


def rejected(kernel, grain):
    return f"void {KERNEL}(void) {{ this is not C; }}"


def unexpected(*_, **__):
    raise AssertionError("two kernels\nof one name")


@pytest.fixture(params=["C", "exception"])
def broken(request, monkeypatch):
    monkeypatch.delenv("FXSTACK_RAISE_FAILURES", raising=False)
    target = (c, "function_text", rejected) if request.param == "C" else (c, "function_text", unexpected)
    monkeypatch.setattr(*target)
    return request.param


def results(run, x, w, trains):
    x, w = x.clone(), w.clone().requires_grad_(trains)
    y = run(x, w)
    return (y, *torch.autograd.grad(y.sum(), w)) if trains else (y,)


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"fullgraph": True},
        {"dynamic": True},
        {"mode": "safe"},
        {"options": {"freezing": True}},
        {"options": {"use_cache": False}},
    ],
    ids=str,
)
def test_one_warning_for_each_graph_and_eagers_results(broken, trains, given, monkeypatch, tmp_path):
    monkeypatch.setenv("FXSTACK_INDUCTOR_CACHE_DIR", str(tmp_path))
    compiled = fxstack.compile(program, **given)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            found = results(compiled, X, W, trains)
    torch.testing.assert_close(found, results(program, X, W, trains))
    log = fxstack.compile_log(compiled)
    graphs = 2 if trains else 1
    assert [str(w.message) for w in caught] == [failure.message for _, failure in log.failures]
    assert (log.failure_count, log.graph_count, log.break_count) == (graphs, 1, 0)
    assert {w.filename for w in caught} == {__file__}
    assert caught[0].lineno in {LINE, LINE + 1}


def test_words(broken):
    compiled = fxstack.compile(program)
    said = {
        "C": r"the C compiler rejected the generated code \(kernels\.c:\d+:\d+: error: .*\)\. This is a defect of fxstack: "
        r"ATen's operators run the graph\. Please report it with the script that options=\{'repro_dir'",
        "exception": "compiling a graph failed with AssertionError: two kernels. This is a defect of fxstack: ATen's",
    }
    with pytest.warns(UserWarning, match=said[broken]):
        compiled(X, W)


def test_the_script_is_written(monkeypatch, tmp_path):
    monkeypatch.delenv("FXSTACK_RAISE_FAILURES", raising=False)
    monkeypatch.setattr(c, "function_text", rejected)
    with pytest.warns(UserWarning, match=r"Please report it with the script .*graph_0\.py"):
        fxstack.compile(program, options={"repro_dir": tmp_path})(X, W)
    assert (tmp_path / "graph_0.py").exists()


@pytest.mark.parametrize("how", ["environment", "option"])
def test_failures_are_errors_where_that_is_asked_for(broken, how, monkeypatch):
    if how == "environment":
        monkeypatch.setenv("FXSTACK_RAISE_FAILURES", "1")
    options = {"raise_failures": True} if how == "option" else {}
    with pytest.raises(fxstack.BackendError, match=r"not.*C|AssertionError: two kernels"):
        fxstack.compile(program, options=options)(X, W)


def test_as_a_backend_of_torch_compile(broken):
    with pytest.warns(UserWarning, match="ATen's operators run the graph"):
        call = torch_backend.fxstack(torch.fx.symbolic_trace(lambda x: (x.sin() + 1,)), [X])
    torch.testing.assert_close(call(X)[0], X.sin() + 1)


def test_a_program_on_disk_that_another_compiler_rejects(monkeypatch, tmp_path):
    monkeypatch.delenv("FXSTACK_RAISE_FAILURES", raising=False)
    monkeypatch.setenv("FXSTACK_INDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    fxstack.compile(program)(X, W)
    fxstack.reset()
    other = tmp_path / "cc"
    other.write_text('#!/bin/sh\ncase "$*" in *probe.c*) exec gcc "$@";; esac; echo error: no >&2; exit 1\n')
    other.chmod(0o755)
    monkeypatch.setattr("fxstack_inductor.runtime.toolchain.CANDIDATES", (str(other),))
    compiled = fxstack.compile(program)
    with pytest.warns(UserWarning, match=r"rejected the generated code \(error: no\)"):
        found = compiled(X, W)
    torch.testing.assert_close(found, program(X, W))
    assert fxstack.compile_log(compiled).failure_count == 1
