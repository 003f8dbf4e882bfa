"""Programs that replace functions of the standard library which a backend needs run plainly meanwhile, and are told so."""

import json
import os.path
import warnings
from unittest import mock

import pytest
import torch

import fxstack_capture as fx
from fxstack_capture import native
from fxstack_capture.driver.errors import TracingWarning

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
@pytest.mark.parametrize(
    "where", [(json, "dumps"), (os.path, "join"), (json.JSONEncoder, "encode")]
)
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
