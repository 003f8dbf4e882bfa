"""Scripts run where the package is not, agree with eager, and notice a kernel that is wrong."""

import dataclasses

import pytest
import torch
from inductor_checks import FAST, trace
from repro_checks import run_alone, run_script
from torch.fx.experimental.proxy_tensor import make_fx

import fxstack_inductor as fi
from fxstack_inductor.runtime.toolchain import find_toolchain

X, W = torch.randn(64, 128), torch.randn(128, 96)
TABLE = torch.randn(50, 8)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "repro.py"


def test_kernels_and_calls(path):
    printed = run_alone(path, lambda x, w: (torch.nn.functional.gelu(x @ w).softmax(-1),), X, W)
    assert "1 outputs" in printed
    text = path.read_text()
    assert "torch.ops.aten.mm" in text
    assert "void kernel_0(" in text


def test_large_index_tensors_stay_in_range(path):
    run_alone(path, lambda t, i: (t[i].sum(1),), TABLE, torch.randint(0, 50, (300,)))
    assert "torch.int64, low=0, high=49)" in path.read_text()


def test_small_integers_and_order_are_kept(path):
    offsets, many = torch.tensor([0, 3, 9]), torch.arange(100)
    run_alone(path, lambda o, m, x: (x[o], x[m % 64]), offsets, many, X)
    assert "make_exact([0, 3, 9], (3,), (1,), torch.int64)" in path.read_text()
    assert "ordered=True" in path.read_text()


def test_symbolic_sizes(path):
    run_alone(path, lambda x, w: ((x @ w).exp().sum(0), x.shape[0] * 2), X, W, symbolic=True)


def test_mutated_inputs_are_compared(path):
    made = make_fx(lambda x, y: x.copy_(x + y), tracing_mode="fake")(X, X.clone())
    done = run_script(fi.write_repro(made, (X, X.clone()), path, FAST))
    assert "check: ok" in done.stdout, done.stdout + done.stderr


def test_random_numbers_are_eagers(path):
    run_alone(path, lambda x: (torch.nn.functional.dropout(x, 0.4), torch.randn_like(x)), X)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.bool, torch.uint8])
def test_dtypes(path, dtype):
    run_alone(path, lambda x: (x.to(torch.float32).sum(0), x.t()), (X > 0).to(dtype))


def test_strides_are_those_of_the_input(path):
    run_alone(path, lambda x, y: (x.sin() + y,), X.t(), torch.randn(64).expand(128, 64))
    assert "make_random((128, 64), (1, 128), torch.float32" in path.read_text()
    assert "make_random((128, 64), (0, 1), torch.float32" in path.read_text()


def test_results_that_lie_otherwise_are_copied(path):
    run_alone(path, lambda x: (torch.normal(x.t(), 1.0) * x.t(),), X)
    assert "= as_planned(" in path.read_text()


def test_constants_of_the_graph(path):
    table = torch.arange(128.0)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", table)

        def forward(self, x):
            return (torch.where(x > self.table, float("inf"), -1.0),)

    made = torch.fx.symbolic_trace(Model())
    fakes = make_fx(made, tracing_mode="real")(X)
    done = run_script(fi.write_repro(fakes, (X,), path, FAST))
    assert "check: ok" in done.stdout, done.stdout + done.stderr


def test_without_inputs_layouts_are_those_of_the_trace(path):
    graph = trace(lambda x, w: ((x @ w).relu(),), X, W)
    assert "check: ok" in run_script(fi.write_repro(graph, path=path, options=FAST)).stdout


def test_the_host_program_in_python_writes_the_same(path):
    compiled = [
        fi.compile_graph(trace(lambda x: (x.sin().sum(),), X), (X,), options)
        for options in (FAST, dataclasses.replace(FAST, host="python"))
    ]
    texts = [fi.write_repro(call, (X,), path).read_text() for call in compiled]
    assert texts[0] == texts[1]


def test_a_wrong_kernel_is_noticed(path):
    fi.write_repro(trace(lambda x: (x.sin() * 2,), X), (X,), path, FAST)
    before = path.read_text()
    path.write_text(before.replace("sinf(", "cosf("))
    assert path.read_text() != before
    done = run_script(path)
    assert done.returncode == 1
    assert "check: FAILED, output 0 differs from the ATen graph in eager torch" in done.stdout


def test_repro_dir_writes_at_the_first_call(tmp_path):
    options = fi.InductorOptions(optimization=1, use_cache=False, repro_dir=tmp_path / "made")
    graph = trace(lambda t, i: (t[i] * 2,), TABLE, torch.arange(9))
    plain = fi.compile_graph(graph, (), options)
    boxed = fi.compile_graph(graph, (), options, boxed=True)
    assert not (tmp_path / "made").exists()
    index = torch.randint(0, 50, (9,))
    for _ in range(2):
        assert torch.equal(plain(TABLE, index)[0], TABLE[index] * 2)
        assert torch.equal(boxed([TABLE, index])[0], TABLE[index] * 2)
    written = sorted(file.name for file in (tmp_path / "made").iterdir())
    assert written == ["graph_0.py", "graph_1.py"]
    assert f"make_exact({index.tolist()}," in (tmp_path / "made" / "graph_1.py").read_text()


def test_kernels_that_do_not_compile_are_written_too(tmp_path, monkeypatch):
    compiler = tmp_path / "cc"
    real = find_toolchain(fi.InductorOptions()).path
    refusal = "echo no such register >&2; exit 3"
    compiler.write_text(f'#!/bin/sh\ncase "$*" in *probe.c*) exec {real} "$@";; esac; {refusal}\n')
    compiler.chmod(0o755)
    options = fi.InductorOptions(compiler=str(compiler), use_cache=False)
    graph = trace(lambda x: (x.sin() * 2,), X)
    with pytest.raises(fi.CompilerFailedError, match=r"no such register\n+a script that shows it alone: "):
        fi.compile_graph(graph, (), options)
    options = fi.InductorOptions(compiler=str(compiler), use_cache=False, repro_dir=tmp_path / "made")
    with pytest.raises(fi.CompilerFailedError, match=r"written: .*graph_0\.py"):
        fi.compile_graph(graph, (), options)
    assert "check: ok" in run_script(tmp_path / "made" / "graph_0.py").stdout
    monkeypatch.setenv("FXSTACK_CC", str(compiler))
    assert "compile: FAILED with status 3" in run_script(tmp_path / "made" / "graph_0.py").stderr


def test_the_environment_names_the_folder(tmp_path):
    assert fi.options_from_environment({"FXSTACK_REPRO_DIR": str(tmp_path)}).repro_dir == tmp_path


def test_what_cannot_be_written_is_named(path):
    with pytest.raises(fi.ReproError, match="neither a GraphModule nor a graph that was compiled"):
        fi.write_repro(len, (), path)
    with pytest.raises(fi.ReproError, match=r"strided tensors on CPU, not torch.sparse_coo on cpu"):
        fi.write_repro(trace(lambda x: (x.sin(),), X), (X.to_sparse(),), path, FAST)


def test_graphs_inside_are_named(path):
    graph = make_fx(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)).exp())(X)
    with pytest.raises(fi.ReproError, match=r"a graph inside \(such as torch.cond\)"):
        fi.write_repro(graph, (X,), path, FAST)


def test_the_largest_integers_are_drawn(path):
    run_alone(path, lambda x: (x > 0,), torch.full((100,), 2**63 - 1))


def test_a_folder_that_cannot_be_made_is_a_warning(tmp_path):
    (tmp_path / "file").write_text("")
    options = fi.InductorOptions(optimization=1, use_cache=False, repro_dir=tmp_path / "file" / "x")
    compiled = fi.compile_graph(trace(lambda x: (x.sin(),), X), (), options)
    with pytest.warns(UserWarning, match="no script was written to"):
        compiled(X)
