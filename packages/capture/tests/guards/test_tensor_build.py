# ruff: noqa: PTH208
"""Building the compiled tensor checks: cache, races, and every way in which it can go wrong."""

import os
import stat
import subprocess
import sys

import pytest

from fxstack_capture.guards import tensor_build
from fxstack_capture.guards.tensor_build import TENSOR_CHECKS, TensorChecks, make_plan
from fxstack_capture.guards.tensor_reading import prepare_tensors


@pytest.fixture(autouse=True)
def _restore():
    TENSOR_CHECKS.wait()
    yield
    prepare_tensors(TENSOR_CHECKS.capsule)


def compiler(directory, script):
    """A fake compiler on the PATH's place."""
    path = directory / "c++"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def files(directory):
    """What is in the cache beside locks."""
    return [name for name in os.listdir(directory) if not name.endswith(".lock")]


def test_without_a_compiler(tmp_path, monkeypatch):
    monkeypatch.setattr(tensor_build, "find_compiler", lambda: None)
    checks = TensorChecks(tmp_path)
    assert not checks.wait()
    assert "no C++ compiler" in checks.why_not


def test_a_failing_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", compiler(tmp_path, "echo broken >&2; exit 3"))
    checks = TensorChecks(tmp_path / "cache")
    assert not checks.wait()
    assert checks.why_not == "RuntimeError: the C++ compiler failed: broken\n"
    assert files(tmp_path / "cache") == []


def test_a_compiler_that_writes_rubbish(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", compiler(tmp_path, 'for last; do :; done; echo rubbish > "$last"'))
    checks = TensorChecks(tmp_path / "cache")
    assert not checks.wait()
    assert checks.why_not.startswith("ImportError")


def test_an_unwritable_cache(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    checks = TensorChecks(tmp_path / "file" / "cache")
    assert not checks.wait()
    assert checks.why_not


def test_poll_does_not_wait(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", compiler(tmp_path, "sleep 0.3; exit 1"))
    checks = TensorChecks(tmp_path / "cache")
    assert not checks.poll()
    assert checks.why_not is None
    assert not checks.wait()


@pytest.mark.skipif(tensor_build.find_compiler() is None, reason="no C++ compiler")
def test_the_cache_is_used(tmp_path, monkeypatch):
    assert TENSOR_CHECKS.compiled, TENSOR_CHECKS.why_not
    plan = make_plan(tensor_build.find_compiler(), tensor_build.cache_directory())
    assert plan.target.exists()
    copy = make_plan(tensor_build.find_compiler(), tmp_path)
    copy.target.write_bytes(plan.target.read_bytes())
    monkeypatch.setattr(subprocess, "Popen", None)
    checks = TensorChecks(tmp_path)
    assert checks.poll(), checks.why_not


def test_disagreement_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(tensor_build, "agrees_with_torch", lambda: False)
    plan = make_plan(tensor_build.find_compiler() or "c++", tensor_build.cache_directory())
    if not plan.target.exists():
        pytest.skip("nothing compiled")
    checks = TensorChecks()
    assert not checks.wait()
    assert "disagree with this torch" in checks.why_not


def test_where_the_cache_is(monkeypatch):
    monkeypatch.setenv("FXSTACK_CACHE_DIR", "/somewhere")
    assert str(tensor_build.cache_directory()) == "/somewhere/tensor_check"
    monkeypatch.delenv("FXSTACK_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    monkeypatch.setattr(tensor_build.sys, "platform", "linux")
    assert str(tensor_build.cache_directory()) == "/cache/fxstack/tensor_check"


def test_the_compiling_process_delivers_by_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", compiler(tmp_path, 'for last; do :; done; echo made > "$last"'))
    monkeypatch.setattr(tensor_build.threading, "Thread", lambda **_: type("T", (), {"start": id})())
    checks = TensorChecks(tmp_path / "cache")
    assert not checks.poll()
    assert checks._process.wait() == 0
    plan = make_plan(str(tmp_path / "c++"), tmp_path / "cache")
    assert files(tmp_path / "cache") == [plan.target.name]
    assert plan.target.read_text() == "made\n"


def test_what_killed_compilers_left_is_removed(tmp_path, monkeypatch):
    old, young = tmp_path / "old.tmp", tmp_path / "young.tmp"
    for path, age in ((old, 7200), (young, 60)):
        path.write_text("")
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - age))
    monkeypatch.setenv("CXX", compiler(tmp_path, "exit 1"))
    TensorChecks(tmp_path).wait()
    assert young.exists()
    assert not old.exists()


@pytest.mark.skipif(tensor_build.find_compiler() is None, reason="no C++ compiler")
def test_nobody_needs_to_ask_again(tmp_path):
    checks = TensorChecks(tmp_path)
    checks.poll()
    for thread in tensor_build.threading.enumerate():
        if thread.name == "fxstack tensor checks":
            thread.join()
    assert checks.compiled, checks.why_not


START = """
import os, sys
from pathlib import Path
from fxstack_capture.guards import tensor_build

tensor_build.TensorChecks(Path(sys.argv[1])).poll()
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.alone
def test_one_compiler_for_all_processes(tmp_path, monkeypatch):
    log, wanted = tmp_path / "log", tmp_path / "go"
    script = f"echo started >> {log}; while [ ! -e {wanted} ]; do sleep 0.05; done; exit 1"
    monkeypatch.setenv("CXX", compiler(tmp_path, script))
    command = [sys.executable, "-c", START, str(tmp_path / "cache")]
    for _ in range(3):  # each ends at once: the compiler of the first holds the lock
        subprocess.run(command, check=True)
    checks = TensorChecks(tmp_path / "cache")
    assert not checks.poll()
    assert checks.why_not is None
    assert log.read_text() == "started\n"
    wanted.touch()
    assert not checks.wait()
    assert "compiler failed" in checks.why_not
    assert log.read_text() == "started\nstarted\n"


ENDS_AT_THE_LAST_STEP = """
import sys, threading, time, torch
from pathlib import Path
from fxstack_capture.guards import tensor_build

agrees, begun = tensor_build.agrees_with_torch, threading.Event()

def slowly():
    begun.set()
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        torch.ones(64, 64) @ torch.ones(64, 64)
    return agrees()

tensor_build.agrees_with_torch = slowly
tensor_build.TensorChecks(Path(sys.argv[1])).poll()
assert begun.wait(120)
"""


@pytest.mark.alone
@pytest.mark.skipif(tensor_build.find_compiler() is None, reason="no C++ compiler")
def test_a_process_that_ends_meanwhile_does_not_abort(tmp_path):
    command = [sys.executable, "-c", ENDS_AT_THE_LAST_STEP, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
