"""What another thread changes while a frame is traced: the frame runs plainly, and later calls are compiled."""

import threading
import types
import warnings

import pytest
import torch

from fxstack_capture import Uncompiled, comptime, native, optimize

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")


def program(state, graphs):
    """A compiled function that reads ``state.k`` and then lets another thread change it, once."""

    def change(_context):
        if state.k == 1:
            thread = threading.Thread(target=setattr, args=(state, "k", 2))
            thread.start()
            thread.join()

    def fn(x):
        found = state.k
        comptime(change)
        return x + found, state.k

    return optimize(lambda graph, _: graphs.append(graph) or graph.forward)(fn)


def calls(beside):
    """Results of three calls while ``beside`` runs in another thread, the number of graphs, and warnings."""
    state, graphs, done = types.SimpleNamespace(k=1), [], threading.Event()
    thread = threading.Thread(target=done.wait)
    if beside:
        thread.start()
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", Uncompiled)
        compiled = program(state, graphs)
        found = [compiled(torch.zeros(1)) for _ in range(3)]
    done.set()
    if beside:
        thread.join()
    return [(x.item(), k) for x, k in found], len(graphs), given


def test_the_next_call_is_compiled():
    assert calls(beside=True) == ([(2, 2)] * 3, 1, [])


def test_with_one_thread_it_is_reported(monkeypatch):
    # What an earlier test has left running (the monitor of a progress bar) does not count here.
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    found, graphs, given = calls(beside=False)
    assert found == [(2, 2)] * 3
    assert graphs == 0
    assert "guards reject their own frame" in str(given[0].message)
