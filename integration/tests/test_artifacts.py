"""What was compiled, carried to another cache: nothing is compiled there; damaged artifacts are refused."""

import pytest
import torch

import fxstack
from fxstack_inductor.runtime.cache import Cache

X = torch.randn(7)


def program(x):
    return (x * 3.25).sin() + 1.75


@pytest.fixture
def caches(monkeypatch, tmp_path):
    """Switches to the cache of a name; gives the entries that are made there from then on."""
    compiled, build = [], Cache.build
    monkeypatch.setattr(Cache, "build", lambda *args: (compiled.append(args), build(*args))[1])

    def switch(name):
        fxstack.reset()
        compiled.clear()
        monkeypatch.setenv("FXSTACK_INDUCTOR_CACHE_DIR", str(tmp_path / name))
        return compiled

    return switch


def test_another_cache_has_what_was_saved(caches):
    compiled = caches("one")
    expected = fxstack.compile(program)(X)
    assert compiled
    data, info = fxstack.save_cache_artifacts()
    assert 0 < info.size
    compiled = caches("two")
    assert set(fxstack.load_cache_artifacts(data).keys) <= set(info.keys)
    assert fxstack.load_cache_artifacts(data).keys == (), "all of it is there already"
    compiled.clear()
    assert torch.equal(fxstack.compile(program)(X), expected)
    assert not compiled


@pytest.mark.parametrize("data", [b"", b"no archive", b"PK"])
def test_what_is_no_artifact_is_refused(caches, data):
    caches("three")
    with pytest.warns(UserWarning, match="load_cache_artifacts: these are no artifacts"):
        assert fxstack.load_cache_artifacts(data) is None


def test_options_of_modes():
    assert fxstack.list_mode_options()["default"] == {}
    assert fxstack.list_mode_options("reduce-overhead") == {"cuda_graphs": True}
    assert {"partitioner", "max_autotune", "autotune", "capture_scalar_outputs"} <= set(
        fxstack.list_options()
    )
    with pytest.raises(ValueError, match="unknown mode 'maxautotune'. Did you mean 'max-autotune'"):
        fxstack.list_mode_options("maxautotune")
