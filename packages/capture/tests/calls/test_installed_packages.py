"""Questions for installed packages are answered in the graph, and asked anew when the search path changes."""

import functools
import importlib.metadata
import importlib.util
import os
import shutil
import sys
from importlib.util import find_spec

import pytest
import torch
from running import Graphs

import fxstack_capture as fx


def is_available(name):
    return find_spec(name) is not None


@functools.cache
def version_of(name):
    try:
        return True, importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False, "N/A"


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x + is_available("torch"),
        lambda x: x + is_available("nosuchpackage"),
        lambda x: x + is_available("wave"),
        lambda x: x + len(find_spec("wave").origin),
        lambda x: x + len(importlib.metadata.version("torch")),
        lambda x: x + (shutil.which("nosuchprogram") is None),
        lambda x: x + len(shutil.which("ls")),
        lambda x: x + (shutil.which("ls", path="/nowhere") is None),
    ],
)
def test_one_graph(program):
    graphs = Graphs()
    optimised = fx.optimize(graphs)(program)
    for _ in range(3):
        assert torch.equal(optimised(torch.ones(2)), program(torch.ones(2)))
    assert len(graphs) == 1
    assert list(fx.explain(program)(torch.ones(2)).breaks) == []


@pytest.mark.parametrize("name", ["torch", "nosuchpackage"])
def test_a_cached_question(name):
    def program(x):
        return x + len(version_of(name)[1]) + version_of(name)[0]

    graphs = Graphs()
    optimised = fx.optimize(graphs)(program)
    version_of.cache_clear()
    for _ in range(3):
        assert optimised(torch.ones(2)).tolist() == program(torch.ones(2)).tolist()
    assert len(graphs) == 1


def test_a_missing_package_raises():
    def program(x):
        return x + len(importlib.metadata.version("nosuchpackage"))

    optimised = fx.optimize(Graphs())(program)
    for _ in range(2):
        with pytest.raises(importlib.metadata.PackageNotFoundError, match="nosuchpackage"):
            optimised(torch.ones(2))


def test_a_spec_that_leaves_the_graph():
    def program(x):
        return x + 1, find_spec("wave")

    _, spec = fx.optimize(Graphs())(program)(torch.ones(2))
    assert spec == find_spec("wave")


def test_a_changed_search_path(tmp_path, monkeypatch):
    (tmp_path / "package_of_this_test.py").touch()

    def program(x):
        return x + is_available("package_of_this_test")

    optimised = fx.optimize(Graphs())(program)
    assert optimised(torch.zeros(1)).item() == 0
    monkeypatch.syspath_prepend(tmp_path)
    assert optimised(torch.zeros(1)).item() == 1
    monkeypatch.undo()
    assert optimised(torch.zeros(1)).item() == 0


def test_a_changed_list_of_finders(monkeypatch):
    class Finder:
        @staticmethod
        def find_spec(name, _path=None, _target=None):
            return importlib.util.spec_from_loader(name, None) if name == "package_of_a_finder" else None

    def program(x):
        return x + is_available("package_of_a_finder")

    optimised = fx.optimize(Graphs())(program)
    assert optimised(torch.zeros(1)).item() == 0
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert optimised(torch.zeros(1)).item() == 1


def test_a_module_that_is_loaded_later(monkeypatch):
    def program(x):
        return x + is_available("module_of_this_test")

    optimised = fx.optimize(Graphs())(program)
    assert optimised(torch.zeros(1)).item() == 0
    module = type(sys)("module_of_this_test")
    module.__spec__ = importlib.util.spec_from_loader("module_of_this_test", None)
    monkeypatch.setitem(sys.modules, "module_of_this_test", module)
    assert optimised(torch.zeros(1)).item() == 1


def test_a_changed_path_of_programs(tmp_path, monkeypatch):
    file = tmp_path / "program_of_this_test"
    file.touch()
    file.chmod(0o700)

    def program(x):
        return x + (shutil.which("program_of_this_test") is not None)

    optimised = fx.optimize(Graphs())(program)
    assert optimised(torch.zeros(1)).item() == 0
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert optimised(torch.zeros(1)).item() == 1
