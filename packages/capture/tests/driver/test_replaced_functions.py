"""Programs that replace functions of the standard library which a backend needs run plainly meanwhile, and are told so."""

import json
import os.path
import subprocess
import sys
import warnings
import weakref
from unittest import mock

import pytest
import torch

import fxstack_capture as fx
from fxstack_capture import native
from fxstack_capture.driver.errors import TracingWarning
from fxstack_capture.driver.frame_policy import builtins_in_use

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")
X = torch.ones(3)


def backend(graph_module, _):
    """Needs a few functions of the standard library."""
    encoded = json.JSONEncoder(sort_keys=True).encode([1])
    made.append(os.path.join(json.dumps([1]), encoded) + "!")  # noqa: PTH118
    return graph_module.forward


made: list = []


def broken(*_args, **_options):
    raise RuntimeError("this one does something else")


@pytest.fixture
def double():
    made.clear()
    return fx.optimize(backend)(lambda x: x * 2)


@pytest.mark.parametrize("by", [broken, lambda *_, **__: 3, mock.Mock()])
@pytest.mark.parametrize("where", [(json, "dumps"), (os.path, "join"), (json.JSONEncoder, "encode")])
def test_frames_run_plainly_meanwhile(double, by, where, monkeypatch):
    monkeypatch.setattr(*where, by)
    with pytest.warns(TracingWarning, match=rf"nothing is compiled while .*{where[1]}.*: "):
        assert torch.equal(double(X), X * 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(double(X), X * 2)
    monkeypatch.undo()
    made.clear()
    assert torch.equal(double(X), X * 2)
    assert len(made) == 1


def test_errors_of_the_backend_stay_errors(monkeypatch):
    def failing(*_):
        raise ValueError("mine")

    with pytest.raises(fx.BackendError, match="mine"):
        fx.optimize(failing)(lambda x: x * 2)(X)
    monkeypatch.setattr(json, "dumps", broken)
    with pytest.raises(fx.BackendError, match="mine"):
        fx.optimize(failing, fullgraph=True)(lambda x: x * 2)(X)


@pytest.mark.parametrize("where", ["time.perf_counter", "hashlib.sha256"])
def test_what_capture_needs_it_holds(double, where):
    with mock.patch(where, broken):
        assert torch.equal(double(X), X * 2)
    assert len(made) == 1


BEFORE = """
import warnings
import torch
original = {original}
{where} = {new}
import fxstack_capture as fx
graphs = []
def backend(graph_module, _):
    graphs.append(graph_module)
    return graph_module.forward
def program(x):
    return x * x.shape[0] + 1
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    for _ in range(3):
        found = fx.optimize(backend)(program)(torch.ones(2))
assert torch.equal(found, program(torch.ones(2))), found
texts = [str(one.message) for one in said if one.category.__name__ == "TracingWarning"]
print(len(graphs), len(texts), *texts)
"""


def _told(where, new, original=None):
    """What a new process prints: numbers of graphs and of warnings, and the warnings."""
    text = BEFORE.format(original=original or where, where=where, new=new)
    made = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True)
    return made.stdout


@pytest.mark.parametrize(
    ("where", "new"),
    [
        ("torch.Tensor.__add__", "lambda x, y: original(x, y)"),
        ("torch.Tensor.shape", "property(lambda x: (9, 9))"),
    ],
)
def test_what_was_replaced_before_the_import_is_said_once(where, new):
    assert _told(where, new).startswith(f"0 1 nothing is compiled while {where} is replaced: ")


def test_what_another_package_has_added_to_tensors_prevents_nothing():
    assert _told("torch.Tensor.added", "property(lambda x: 3)", "None").startswith("3 0")


def test_weak_references_of_the_programs_own_are_said(double, monkeypatch):
    original = weakref.ref
    monkeypatch.setattr(builtins_in_use, "_WARNED", set())
    monkeypatch.setattr(weakref, "ref", lambda *given: original(*given))
    with pytest.warns(TracingWarning, match="nothing is compiled while weakref.ref is replaced: "):
        assert torch.equal(double(X), X * 2)
    assert not made
    monkeypatch.undo()
    assert torch.equal(double(X), X * 2)
    assert len(made) == 1


def _call(fn):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return fn(X)


@pytest.mark.parametrize(
    ("owner", "name", "by"),
    [
        (torch.Tensor, "__mul__", lambda x, _: x),
        (torch.Tensor, "shape", property(lambda _: (7,))),
        (weakref, "ref", lambda *given: weakref.ReferenceType(*given)),
    ],
)
@pytest.mark.parametrize("given", [lambda x: x * 2, torch.nn.Linear(3, 3)], ids=["function", "module"])
def test_one_whole_graph_is_an_error_that_names_it(owner, name, by, given, monkeypatch):
    fn = fx.optimize(backend, fullgraph=True)(given)
    monkeypatch.setattr(owner, name, by)
    with pytest.raises(fx.Unsupported, match=rf"nothing is compiled while [\w.]*\.{name} is replaced"):
        _call(fn)
    monkeypatch.undo()
    assert torch.equal(_call(fn), given(X))


LIBRARY = """
import inspect
original = inspect.getfile
def getfile(value):
    return original(value)
inspect.getfile = getfile
"""
AFTERWARDS = """
import sys, warnings
sys.path[:0] = {paths}
{before}
import fxstack_capture as fx
import torch
{after}
def backend(graph_module, _):
    raise ValueError("mine")
with warnings.catch_warnings():
    warnings.simplefilter("error")
    try:
        fx.optimize(backend)(lambda x: x * 2)(torch.ones(2))
    except fx.BackendError as error:
        print("raised", error)
"""


def _outcome(tmp_path, before, after, pointed):
    """What a process prints whose backend fails; a library replaces ``inspect.getfile``."""
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "patching.py").write_text(LIBRARY)
    (tmp_path / "site").mkdir()
    if pointed:
        (tmp_path / "site" / "linked.pth").write_text("../linked\n")
    paths = [str(tmp_path / "site"), str(tmp_path / "linked")]
    text = AFTERWARDS.format(paths=paths, before=before, after=after)
    made = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    return made.stdout + made.stderr


IMPORT = "import patching"


@pytest.mark.parametrize(
    ("before", "after", "pointed"), [(IMPORT, "", True), (IMPORT, "", False), ("", IMPORT, True)]
)
def test_libraries_replace_functions_for_good(before, after, pointed, tmp_path):
    assert "raised" in _outcome(tmp_path, before, after, pointed)


def test_the_programs_own_modules_are_no_libraries(tmp_path):
    assert "nothing is compiled while the program replaces" in _outcome(tmp_path, "", IMPORT, False)


def test_fx_traces_a_module_with_a_compiled_module_inside():
    """FX replaces ``torch.nn.Module.__call__``, and looks for the module that it is called with among the submodules."""
    plain = torch.nn.Sequential(
        torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()), torch.nn.Flatten(0)
    )
    outer = torch.nn.Sequential(fx.optimize(lambda graph, _: graph.forward)(plain[0]), plain[1])
    targets = [[str(node.target) for node in torch.fx.Tracer().trace(m).nodes] for m in (plain, outer)]
    assert targets[0] == targets[1]
    torch.testing.assert_close(outer(X), plain(X))
