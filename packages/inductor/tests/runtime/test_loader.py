"""Where the cache's directory cannot be written, kernels are compiled without it, and a warning says so."""

import os
from dataclasses import replace

import pytest
import torch
from inductor_checks import FAST, trace

import fxstack_inductor as fi
from fxstack_inductor.errors import CompilerFailedError, NoCompilerError
from fxstack_inductor.runtime.cache import Cache
from fxstack_inductor.runtime.toolchain import Toolchain

X = torch.randn(4, 4)


def compiled_in(directory):
    options = replace(FAST, use_cache=True, cache_dir=directory)
    (result,) = fi.compile_graph(trace(lambda x: x.sin() + 1, X), (), options)(X)
    torch.testing.assert_close(result, X.sin() + 1)


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="not kept in .*file.*FXSTACK_INDUCTOR_CACHE_DIR"):
        compiled_in(tmp_path / "file" / "cache")


def test_a_directory_that_is_read_only(tmp_path, monkeypatch):
    access = os.access
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path and access(path, mode))
    with pytest.warns(UserWarning, match="it is read-only"):
        compiled_in(tmp_path)


def test_a_directory_that_can_only_be_read_is_read(tmp_path, monkeypatch):
    compiled_in(tmp_path)
    access = os.access
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path and access(path, mode))
    monkeypatch.setattr(Toolchain, "compile", None)
    compiled_in(tmp_path)


def test_a_disk_that_is_full(tmp_path, monkeypatch):
    def full(self, *_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Cache, "build", full)
    with pytest.warns(UserWarning, match="not kept in .*No space left on device"):
        compiled_in(tmp_path)


def test_a_compiler_that_fails_for_a_full_disk(tmp_path, monkeypatch):
    real = Toolchain.compile

    def compile_(self, source, output):
        if tmp_path in output.parents:
            raise CompilerFailedError("gcc failed:\nfatal error: No space left on device")
        real(self, source, output)

    monkeypatch.setattr(Toolchain, "compile", compile_)
    with pytest.warns(UserWarning, match=r"\(fatal error: No space left on device\)"):
        compiled_in(tmp_path)


def test_disks_that_nothing_can_be_loaded_from(tmp_path, monkeypatch):
    def refuse(path):
        raise OSError(f"{path}: failed to map segment from shared object")

    monkeypatch.setattr("ctypes.CDLL", refuse)
    with (
        pytest.warns(UserWarning, match="not kept in"),
        pytest.raises(NoCompilerError, match="not mounted noexec, in the environment variable"),
    ):
        compiled_in(tmp_path)


def test_a_file_in_the_place_of_entries(tmp_path):
    for byte in range(256):
        (tmp_path / f"{byte:02x}").write_text("foreign")
    with pytest.warns(UserWarning, match="not kept in"):
        compiled_in(tmp_path)


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_directory_by_its_name(tmp_path):
    compiled_in(str(tmp_path / "new"))
    assert list((tmp_path / "new").glob("??/*"))


@pytest.mark.parametrize("name", ["x" * 300, "0777/cache"])
def test_a_warning_once_for_a_directory(tmp_path, name):
    """A name that is too long; a directory that others can write."""
    (tmp_path / "0777" / "cache").mkdir(parents=True)
    (tmp_path / "0777" / "cache").chmod(0o777)
    with pytest.warns(UserWarning, match="not kept in .*(too long|other users can write)") as found:
        compiled_in(tmp_path / name)
        compiled_in(tmp_path / name)
    assert len(found) == 1
    assert len(str(found[0].message)) < 1000


def test_a_limit_that_is_no_number():
    with pytest.warns(
        UserWarning, match="FXSTACK_INDUCTOR_CACHE_LIMIT is 'abc', .* set it to a number of bytes"
    ):
        options = fi.options_from_environment({"FXSTACK_INDUCTOR_CACHE_LIMIT": "abc"})
    assert options == fi.InductorOptions()
