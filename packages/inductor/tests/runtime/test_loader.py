"""Where the cache's directory cannot be written, kernels are compiled without it, and a warning says so."""

import os
from dataclasses import replace

import pytest
import torch
from inductor_checks import FAST, trace

import fxstack_inductor as fi

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


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_directory_by_its_name(tmp_path):
    compiled_in(str(tmp_path / "new"))
    assert list((tmp_path / "new").glob("??/*"))
