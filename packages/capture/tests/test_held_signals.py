"""Signal handlers wait until a compilation is done; their exceptions reach the program as they are."""

import signal

import pytest
import torch

import fxstack_capture
from fxstack_interchange.collector import held_signals


class HandlerError(Exception):
    pass


@pytest.fixture(params=[signal.SIGALRM, signal.SIGUSR1, signal.SIGINT])
def number(request):
    def handler(*_):
        raise HandlerError

    before = signal.signal(request.param, handler)
    yield request.param
    signal.signal(request.param, before)


def test_a_handler_runs_at_the_end(number):
    steps = []
    with pytest.raises(HandlerError), held_signals():
        signal.raise_signal(number)
        steps.append("went on")
    assert steps == ["went on"]
    with pytest.raises(HandlerError):
        signal.raise_signal(number)


def test_a_second_interrupt_is_not_held(number):
    def twice():
        signal.raise_signal(number)
        signal.raise_signal(number)
        steps.append("went on")

    steps = []
    with pytest.raises(HandlerError), held_signals():
        twice()
    assert steps == ([] if number == signal.SIGINT else ["went on"])


def test_no_backend_error(number):
    def backend(graph_module, inputs):
        signal.raise_signal(number)
        return graph_module.forward

    compiled = fxstack_capture.optimize(backend=backend)(lambda x: x + 1)
    with pytest.raises(HandlerError):
        compiled(torch.ones(2))
