"""Recorded calls against eager, with a recorder that replays on CPU: the same addresses are read and written again."""

import contextlib
import threading
import time

import pytest
import torch

from fxstack_inductor import torch_compat
from fxstack_inductor.runtime import cuda_graphs
from fxstack_inductor.runtime.cuda_graphs import MAX_RECORDINGS, GraphedCall


class Recorder:
    """Captures without leaving an effect, as a device does; a replay writes into the results of the capture."""

    def __init__(self):
        self.captured = self.replayed = 0

    def __call__(self, run):
        self.captured += 1
        values = run()
        for value in values:
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
                value.mul_(1)

        def replay():
            self.replayed += 1
            for old, new in zip(values, run()):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)

        return values, replay


@pytest.fixture
def recorder():
    return Recorder()


BIG = 1 << 15
HERE = (0, ())
"""Where recordings of known sizes on the only stream are."""


def results_of(call, count):
    """Results of calls on one tensor that holds 0, 1, 2, ..., all of them kept."""
    x = torch.zeros(BIG)
    return [call(x.fill_(k))[0] for k in range(count)]


def test_the_first_call_runs_plainly_and_later_ones_are_replayed(recorder):
    call, x = GraphedCall(lambda x: (x + 1,), recorder), torch.zeros(3)
    for step in range(5):
        assert torch.equal(call(x.fill_(step))[0], torch.full((3,), step + 1.0))
    assert (recorder.captured, recorder.replayed) == (1, 4)


def test_what_stays_in_place_is_not_copied(recorder):
    weight = torch.ones(3)
    call = GraphedCall(lambda w, x: (w * x,), recorder)
    for step in range(4):
        weight.fill_(step)
        assert torch.equal(call(weight, torch.full((3,), 2.0))[0], torch.full((3,), 2.0 * step))
    assert 0 in call.recordings[HERE][0].addresses


def test_results_that_are_still_held_are_not_overwritten(recorder):
    call = GraphedCall(lambda x: (x + 1,), recorder)
    held = results_of(call, 4)
    assert [h[0].item() for h in held] == [1, 2, 3, 4]
    assert recorder.captured == 3


def test_results_that_were_dropped_give_their_memory_to_the_next(recorder):
    call = GraphedCall(lambda x: (x + 1,), recorder)
    for k in range(6):
        assert call(torch.full((BIG,), float(k)))[0][0].item() == k + 1
    assert len(call.recordings[HERE]) == 1


def test_an_input_that_moves_is_copied_from_then_on(recorder):
    call = GraphedCall(lambda x: (x + 1,), recorder)
    places = [torch.full((BIG,), float(k)) for k in range(3)]
    for k in (0, 0, 0, 1, 2, 0, 1):
        assert call(places[k])[0][0].item() == k + 1
    assert recorder.captured == 3
    (last,) = call.recordings[HERE]
    assert last.owned.keys() == {0}


def test_inputs_at_two_places_have_two_recordings(recorder):
    """As a backward's are where the program holds the last results while a forward runs."""
    call, places = (GraphedCall(lambda x: (x + 1,), recorder), torch.arange(3.0)[:, None].repeat(1, BIG))
    for k in (0, 1, 2, 1, 2, 1, 2):
        assert call(places[k])[0][0].item() == k + 1
    assert recorder.captured == 2
    assert [r.owned for r in call.recordings[HERE]] == [{}, {}]


def test_results_that_feed_another_recording_become_free_again():
    first, second = Recorder(), Recorder()
    forward = GraphedCall(lambda x: (x * 2,), first)
    backward = GraphedCall(lambda y: (y + 1,), second)
    x = torch.ones(BIG)
    for step in range(8):
        x.fill_(step)
        assert backward(*forward(x))[0][0].item() == 2 * step + 1
    # Unlike a device's, the stand-in's recordings keep what they read, so that a few more are made.
    assert max(first.captured, second.captured) <= 3


def test_a_view_of_a_result_holds_it_too(recorder):
    call = GraphedCall(lambda x: (x + 1,), recorder)
    call(torch.zeros(BIG))
    view = call(torch.zeros(BIG))[0][5:7]
    call(torch.ones(BIG))
    assert view.tolist() == [1, 1]


def test_recordings_are_bounded(recorder):
    call = GraphedCall(lambda x: (x + 1,), recorder)
    held = results_of(call, MAX_RECORDINGS + 5)
    assert recorder.captured == MAX_RECORDINGS
    assert [h[0].item() for h in held] == list(range(1, MAX_RECORDINGS + 6))


def test_each_size_has_its_recording(recorder):
    call = GraphedCall(lambda x: (x * 2,), recorder, symbolic=True)
    inputs = {size: torch.ones(size) for size in (3, 4)}
    for size in (3, 4, 3, 4, 3):
        assert torch.equal(call(inputs[size])[0], torch.full((size,), 2.0))
    assert recorder.captured == 2


def test_numbers_are_part_of_a_recording_and_few_are_remembered(recorder):
    call, x = GraphedCall(lambda x, n: (x * n,), recorder, symbolic=True), torch.ones(3)
    for n in (2.0, 2.0, 2.0, *(k / 7 for k in range(200)), 2.0):
        assert call(x, n)[0].tolist() == (x * n).tolist()
    assert recorder.captured == 1
    assert len(call.seen) <= cuda_graphs.MAX_KEYS


def test_inputs_and_their_views_are_returned_as_the_caller_s(recorder):
    call = GraphedCall(lambda x: (x, x[1:], None, 7), recorder)
    for _ in range(3):
        x = torch.randn(4)
        whole, rest, nothing, seven = call(x)
        assert whole is x
        assert rest.data_ptr() == x[1:].data_ptr()
        assert (nothing, seven) == (None, 7)


def test_an_input_that_is_written_must_stay_in_place(recorder):
    call = GraphedCall(lambda x: (x.add_(1).sum(),), recorder, mutated=frozenset({0}))
    for _ in range(3):
        x = torch.zeros(3)
        keep = x  # at another address each time
        call(x)
        assert keep.tolist() == [1, 1, 1]
        recorder.keep = [*getattr(recorder, "keep", []), x]
    assert recorder.captured == 0


def test_a_recording_that_fails_is_given_up_with_the_reason():
    def fail(run):
        raise RuntimeError("operation not permitted when stream is capturing")

    call = GraphedCall(lambda x: (x + 1,), fail)
    call(torch.zeros(2))
    with pytest.warns(UserWarning, match="CUDA graphs are off .* not permitted when stream"):
        assert call(torch.zeros(2))[0].tolist() == [1, 1]
    assert call(torch.ones(2))[0].tolist() == [2, 2]


def test_small_results_are_copied_out(recorder):
    call = GraphedCall(lambda x: (x.sum(),), recorder)
    x = torch.zeros(3)
    losses = [call(x.fill_(k))[0] for k in range(4)]
    assert [loss.item() for loss in losses] == [0, 3, 6, 9]
    assert recorder.captured == 1
    assert cuda_graphs.SMALL_BYTES >= losses[0].element_size()


def test_few_small_results_are_copied_out(recorder):
    """Those of a training forward are many, and free again when the backward has run."""
    call = GraphedCall(lambda x: tuple(x + k for k in range(9)), recorder)
    x = torch.zeros(3)
    kept = [call(x.fill_(10 * k)) for k in range(3)]
    assert [[int(r[0]) for r in results] for results in kept] == [
        [10 * k + n for n in range(9)] for k in range(3)
    ]
    (first, *_) = call.recordings[HERE]
    assert [r.small for r in first.results] == [True] * 4 + [False] * 5


def test_each_stream_has_its_recording(recorder):
    """What was launched on one stream may still read a result when the host has dropped it."""
    now = [5]
    call = GraphedCall(lambda x: (x + 1,), recorder, stream=lambda: now[0])
    x = torch.zeros(BIG)
    for step, stream in enumerate((5, 6, 5, 6, 5, 6)):
        now[0] = stream
        assert call(x.fill_(step))[0][0].item() == step + 1
    assert [len(made) for made in call.recordings.values()] == [1, 1]


def test_nothing_is_recorded_or_replayed_while_the_program_records(recorder):
    streams = [0, 0, None]
    call = GraphedCall(lambda x: (x + 1,), recorder, stream=lambda: streams.pop(0))
    x = torch.zeros(BIG)
    assert [call(x.fill_(k))[0][0].item() for k in range(3)] == [1, 2, 3]
    assert (recorder.captured, recorder.replayed) == (1, 1)


def test_threads_do_not_overwrite_each_others_results(recorder):
    call, found = GraphedCall(lambda x: (x + 1,), recorder), []

    def work(number):
        x = torch.full((BIG,), float(number))
        found.extend(call(x)[0][0].item() == number + 1 for _ in range(20))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 80


class FakeGraph:
    """Torch's recorder where nothing is recorded; ``events`` are its calls, ``broken`` how many of its ends fail."""

    events, broken = [], 0

    def capture_begin(self, **_):
        FakeGraph.events.append("begin")

    def capture_end(self):
        FakeGraph.events.append("end")
        if FakeGraph.broken:
            FakeGraph.broken -= 1
            raise RuntimeError("the recording is invalid")

    def replay(self):
        FakeGraph.events.append("replay")


class FakeStream:
    """A stream of recordings; ``current`` is the program's own, ``used`` are those that were entered."""

    current, used = 0, []

    def __init__(self, device):
        self.device = device

    @contextlib.contextmanager
    def entered(self):
        FakeStream.used.append(self)
        yield


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(FakeStream, "used", [])
    monkeypatch.setattr(FakeGraph, "events", [])
    monkeypatch.setattr(FakeGraph, "broken", 0)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "Stream", lambda number: FakeStream(number))
    monkeypatch.setattr(FakeStream, "current", 0)
    monkeypatch.setattr(torch_compat, "cuda_getCurrentRawStream", lambda _: FakeStream.current)
    monkeypatch.setattr(torch.cuda, "stream", FakeStream.entered)
    monkeypatch.setattr(cuda_graphs, "_PLACE", "cpu")
    cuda_graphs._side_stream.cache_clear()
    yield FakeGraph
    cuda_graphs._side_stream.cache_clear()


def test_a_recording_is_begun_and_ended_on_its_device(device):
    values, replay = cuda_graphs.capture_on_device(lambda: (7,))
    replay()
    assert (values, device.events) == ((7,), ["begin", "end", "replay"])
    assert [stream.device for stream in FakeStream.used] == [1]


def test_each_stream_of_the_program_is_recorded_on_a_stream_of_its_own(device):
    for FakeStream.current in (0, 7, 0):
        cuda_graphs.capture_on_device(lambda: (7,))
    first, second, third = FakeStream.used
    assert first is third
    assert first is not second


def test_one_thread_records_at_a_time(device):
    def busy():
        inside.append(len(inside))
        time.sleep(0.01)
        assert len(inside) == 1
        return (inside.pop(),)

    inside, results = [], []
    work = lambda: results.append(cuda_graphs.capture_on_device(busy)[0])  # noqa: E731
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [(0,)] * 4


@pytest.mark.parametrize("broken", [0, 1])
def test_a_recording_in_which_something_fails_is_ended(device, broken):
    device.broken = broken

    def fail():
        raise RuntimeError("the first reason")

    with pytest.raises(RuntimeError, match="the first reason"):
        cuda_graphs.capture_on_device(fail)
    assert device.events == ["begin", "end"] * (1 + broken)


def test_a_recording_that_cannot_be_ended_is_followed_by_a_whole_one(device):
    device.broken = 1
    with pytest.raises(RuntimeError, match="the recording is invalid"):
        cuda_graphs.capture_on_device(lambda: (7,))
    assert device.events == ["begin", "end"] * 2
