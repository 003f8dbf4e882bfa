"""Finding a compiler, and saying what to do when there is none."""

import dataclasses
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from inductor_checks import FAST, trace

import fxstack_inductor as fi
from fxstack_inductor.runtime.toolchain import find_toolchain, openmp_libraries

X = torch.randn(4)


def test_without_a_compiler_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(fi.NoCompilerError) as error:
        fi.compile_graph(trace(lambda x: x + 1, X), (X,), FAST)
    message = str(error.value)
    assert "no C compiler found (looked for gcc, cc, clang)" in message
    assert "apt install gcc" in message
    assert "FXSTACK_CC" in message
    assert "\n" not in message


def test_a_named_compiler_that_is_missing_is_named():
    options = dataclasses.replace(FAST, compiler="no-such-cc")
    with pytest.raises(fi.NoCompilerError, match="FXSTACK_CC=no-such-cc"):
        find_toolchain(options)


def test_graphs_without_kernels_need_no_compiler(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    a = torch.randn(3, 3)
    compiled = fi.compile_graph(trace(lambda a: a @ a, a), (a,), FAST)
    assert torch.equal(compiled(a)[0], a @ a)


def test_identity_depends_on_what_decides_the_binary():
    other = dataclasses.replace(FAST, optimization=2)
    assert find_toolchain(FAST).identity == find_toolchain(FAST).identity
    assert find_toolchain(FAST).identity != find_toolchain(other).identity


def test_a_rejected_source_reports_command_and_output(tmp_path):
    source = tmp_path / "bad.c"
    source.write_text("this is not C")
    with pytest.raises(fi.CompilerFailedError, match="defect of fxstack-inductor") as error:
        find_toolchain(FAST).compile(source, tmp_path / "bad.so")
    assert "bad.c" in str(error.value)


def broken_compiler(folder, script):
    path = folder / "cc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return dataclasses.replace(FAST, compiler=str(path))


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'probe.c:1:10: fatal error: math.h: No such file or directory' >&2; exit 1", "math.h"),
        ("exit 3", "ends with status 3"),
    ],
)
def test_a_compiler_that_compiles_nothing_is_none(script, reason, tmp_path):
    with pytest.raises(fi.NoCompilerError) as error:
        fi.compile_graph(trace(lambda x: x + 1, X), (X,), broken_compiler(tmp_path, script))
    message = str(error.value)
    assert message.startswith(f"the C compiler {tmp_path}/cc does not compile a program of three lines (")
    assert reason in message
    assert "libc6-dev" in message
    assert "FXSTACK_CC" in message


def test_a_compiler_that_is_killed_says_by_what(tmp_path):
    real = find_toolchain(FAST).path
    options = broken_compiler(tmp_path, f'case "$*" in *probe*) exec {real} "$@";; esac; kill -9 $$')
    with pytest.raises(fi.CompilerFailedError, match="killed by signal 9, which happens where memory"):
        fi.compile_graph(trace(lambda x: x + 1, X), (X,), options)


def test_environment_sets_options(tmp_path):
    options = fi.options_from_environment(
        {"FXSTACK_CC": "clang", "FXSTACK_INDUCTOR_CACHE_DIR": str(tmp_path), "FXSTACK_INDUCTOR_NO_CACHE": "1"}
    )
    assert options.compiler == "clang"
    assert options.cache_dir == tmp_path
    assert not options.use_cache


PROGRAM = """
import sys, torch, fxstack_inductor as fi
from torch.fx.experimental.proxy_tensor import make_fx
torch.set_num_threads(2)
x = torch.randn(100000)
graph = make_fx(lambda x: x.exp().sum(), tracing_mode="fake")(x)
fi.compile_graph(graph, (x,), fi.InductorOptions(use_cache=False, optimization=1, compiler=sys.argv[1]))(x)
maps = open("/proc/self/maps").read()
found = {line.split()[-1] for line in maps.splitlines() if "libgomp" in line or "libomp" in line}
print(len(found))
"""


@pytest.mark.skipif(openmp_libraries() == ("-fopenmp",), reason="this torch brings no libgomp")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_one_openmp_runtime_is_loaded(compiler):
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} is installed")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, compiler], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "1"


def test_prelude_ships_with_the_package():
    assert (Path(fi.__file__).parent / "codegen" / "prelude.h").is_file()
