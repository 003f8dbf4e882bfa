"""What a recompilation says: which guard failed, its old and new value, the user's line; and where it ends."""

import logging
import re
import threading
import warnings

import pytest
import torch
from counting import Counting

import fxstack_capture
from fxstack_capture.driver.errors import RecompileError, RecompileLimitError, TracingWarning


class Observer:
    def __init__(self):
        self.records = []

    def on_trace(self, seconds): ...

    def on_break(self, record): ...

    def on_recompile(self, record):
        self.records.append(record)


def compiled(fn, backend=None, observer=None, **options):
    chosen = fxstack_capture.CaptureOptions(**options)
    backend = backend or (lambda gm, _: gm.forward)
    return fxstack_capture.optimize(backend, options=chosen, observer=observer)(fn)


def scaled(x, mode):
    if mode == "double":
        return x * 2
    return x + 1


X = torch.ones(2)
LINE = scaled.__code__.co_firstlineno


def test_the_record_names_guard_values_and_line():
    observer = Observer()
    fn = compiled(scaled, observer=observer)
    fn(X, "double")
    fn(X, "single")
    (record,) = observer.records
    assert (record.name, record.line) == ("scaled", LINE)
    (failure,) = record.failures
    assert failure.source_name == "mode"
    assert failure.demanded == "must be 'double'"
    assert failure.found == "it is 'single'"
    assert failure.user_line == f"{__file__}:{LINE + 1} in scaled"


def test_the_log_says_the_same(caplog):
    fn = compiled(scaled)
    with caplog.at_level(logging.INFO, "fxstack_capture.recompiles"):
        fn(X, "double")
        assert not caplog.records
        fn(X, "single")
    (record,) = caplog.records
    assert record.getMessage() == (
        f"recompiling scaled ({__file__}:{LINE}) because\n"
        f"  mode: must be 'double', but it is 'single' (needed by {__file__}:{LINE + 1} in scaled)"
    )


def test_it_can_be_an_error():
    fn = compiled(scaled, error_on_recompile=True)
    fn(X, "double")
    with pytest.raises(RecompileError, match="mode: must be 'double', but it is 'single'"):
        fn(X, "single")
    assert torch.equal(fn(X, "double"), X * 2)


def test_one_failure_for_each_entry():
    observer = Observer()
    fn = compiled(scaled, observer=observer)
    for mode in ("a", "b", "c"):
        fn(X, mode)
    assert [len(record.failures) for record in observer.records] == [1, 2]


def test_beyond_the_limit_entries_still_serve():
    backend = Counting()
    fn = compiled(scaled, backend, recompile_limit=2)
    with pytest.warns(TracingWarning, match="was compiled 2 times") as caught:
        for mode in ("double", "a", "b", "c", "d"):
            assert torch.equal(fn(X, mode), scaled(X, mode))
    assert "mode: must be 'double', but it is 'b'" in str(caught[0].message)
    hits = lambda: sum(e.hits for e in fxstack_capture.native.entries(scaled.__code__, fn.owner))
    before = hits()
    fn(X, "double")
    assert (len(backend.graphs), hits() - before) == (2, 1)


def test_each_state_of_torch_has_the_limit_for_itself():
    backend = Counting()
    fn = compiled(scaled, backend, recompile_limit=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TracingWarning)
        for enabled in (True, False):
            for mode in ("double", "single"):
                with torch.set_grad_enabled(enabled), torch.autocast("cpu", enabled=not enabled):
                    fn(X, mode)
    assert len(backend.graphs) == 4
    with pytest.warns(TracingWarning, match="was compiled 2 times"):
        fn(X, "other")


def test_beyond_the_limit_it_can_raise():
    fn = compiled(scaled, recompile_limit=1, fail_on_recompile_limit=True)
    fn(X, "double")
    with pytest.raises(RecompileLimitError, match="mode: must be 'double'"):
        fn(X, "a")
    assert torch.equal(fn(X, "double"), X * 2)


def apply(x, fn):
    return fn(x) + 1


def test_entries_that_died_count_to_another_limit():
    fn = compiled(apply, recompile_limit=99, accumulated_recompile_limit=5)
    with pytest.warns(TracingWarning, match=r"5 times \(accumulated_recompile_limit\)") as caught:
        for k in range(9):
            assert torch.equal(fn(X, lambda x, k="a" * k: x * len(k)), X * k + 1)
    assert len(caught) == 1


def test_threads_that_miss_together_compile_once():
    backend = Counting()
    fn = compiled(scaled, backend)
    start = threading.Barrier(6)

    def call():
        start.wait()
        assert torch.equal(fn(X, "double"), X * 2)

    threads = [threading.Thread(target=call) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(backend.graphs) == 1


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.mode = torch.nn.Linear(3, 3), "plain"

    def forward(self, x, *more, scale=None):
        y = self.layer(x) if scale is None else self.layer(x) * scale
        return y + 1 if self.mode == "more" else y


def broken(x, items):
    for item in (one for one in items):
        x = x + item
        fxstack_capture.graph_break()
    return x.sin() + [x * i for i in iter(items) if fxstack_capture.graph_break() is None][0]


RECOMPILING = [
    (Model, lambda: [((torch.ones(2, 3),), {}), ((torch.ones(4, 3),), {})]),
    (Model, lambda: [((torch.ones(2, 3),), {"scale": 2}), ((torch.ones(2, 3),), {"scale": 3.5})]),
    (lambda: broken, lambda: [((torch.ones(2), [1, 2]), {}), ((torch.ones(2), [2.5, 3]), {})]),
    (lambda: broken, lambda: [((torch.ones(2), [1]), {}), ((torch.ones(3), [torch.ones(3), 4]), {})]),
]


@pytest.mark.parametrize(("make", "calls"), RECOMPILING)
def test_messages_name_functions_and_values_of_the_program(make, calls, caplog):
    caplog.set_level("INFO", "fxstack_capture.recompiles")
    made = compiled(make(), dynamic=False)
    for args, kwargs in calls():
        made(*args, **kwargs)
    assert caplog.messages
    for message in caplog.messages:
        assert not re.search(r"_call_impl|module\.py|linear\.py|args\[|(?<![\w\])])\.[a-z]+\d", message)
        assert re.match(rf"recompiling (Model\.forward|broken.*) \({re.escape(__file__)}:", message)


def test_a_message_names_the_parameter_of_forward(caplog):
    caplog.set_level("INFO", "fxstack_capture.recompiles")
    made = compiled(Model(), dynamic=False)
    made(torch.ones(2, 3)), made(torch.ones(4, 3))
    assert caplog.messages[0].splitlines()[1].startswith("  x: must be a torch.Tensor")
