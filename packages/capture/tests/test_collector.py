"""The collector is off while something compiles, and afterwards as it was."""

import gc

import pytest
import torch

from fxstack_capture import optimize
from fxstack_interchange.collector import paused_collector


@pytest.fixture(params=[True, False])
def enabled(request):
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


def test_pauses_nest_and_end(enabled):
    with paused_collector():
        with paused_collector():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled() == enabled


def test_a_pause_ends_with_an_exception(enabled):
    with pytest.raises(ValueError, match="inside"), paused_collector():
        raise ValueError("inside")
    assert gc.isenabled() == enabled


def test_paused_while_a_backend_compiles(enabled):
    seen = []

    def backend(graph, _):
        seen.append(gc.isenabled())
        return graph.forward

    optimize(backend)(lambda x: x + 1)(torch.ones(2))
    assert seen == [False]
    assert gc.isenabled() == enabled
