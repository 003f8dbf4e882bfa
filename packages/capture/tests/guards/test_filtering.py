"""The option ``guard_filter_fn``, beside torch.compile's: which changes compile again when some guards are left out."""

import pytest
import torch

import fxstack_capture as fx
from fxstack_capture.guards.records import TensorIs

READY_MADE = (
    "skip_guard_on_inbuilt_nn_modules_unsafe",
    "skip_guard_on_all_nn_modules_unsafe",
    "keep_tensor_guards_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_all_guards_unsafe",
    "keep_portable_guards_unsafe",
)
FACTOR = 2


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.factor = 2

    def forward(self, x):
        return self.linear(x) * self.factor * FACTOR


def ours(backend, keep):
    return fx.optimize(backend, options=fx.CaptureOptions(guard_filter_fn=keep))


def incumbent(backend, keep):
    torch._dynamo.reset()
    return lambda fn: torch.compile(fn, backend=backend, options={"guard_filter_fn": keep})


def graphs_after_changes(compiling, keep, monkeypatch):
    with monkeypatch.context() as patched:
        return _graphs_after_changes(compiling, keep, patched)


def _graphs_after_changes(compiling, keep, monkeypatch):
    """Numbers of graphs after a call, and after calls where one thing more has changed."""
    module, graphs, counts = Scaled(), [], []
    compiled = compiling(lambda gm, _: graphs.append(gm) or gm.forward, keep)(module)

    def call(size=3):
        compiled(torch.ones(size, 3))
        counts.append(len(graphs))

    call()
    module.factor = 5
    call()
    monkeypatch.setitem(globals(), "FACTOR", 7)
    call()
    module.linear.bias = None
    call()
    call(size=4)
    with torch.no_grad():
        call()
    return counts


@pytest.mark.parametrize("name", READY_MADE)
def test_ready_made_filters_are_those_of_torch(name, monkeypatch):
    of_torch = getattr(torch.compiler, name)
    expected = graphs_after_changes(incumbent, of_torch, monkeypatch)
    assert graphs_after_changes(ours, of_torch, monkeypatch) == expected
    assert graphs_after_changes(ours, getattr(fx, name), monkeypatch) == expected


def entries_of(fn, *args):
    seen = []
    ours(lambda gm, _: gm.forward, lambda entries: seen.extend(entries) or [True] * len(entries))(fn)(*args)
    return seen


def test_entries_say_what_is_guarded():
    entries = entries_of(lambda x, options: x * options["k"] * FACTOR, torch.ones(2), {"k": 3})
    by_name = {(e.name, e.guard_type): e for e in entries}
    tensor = by_name["x", "TENSOR_MATCH"]
    assert tensor.has_value and tensor.value.shape == (2,) and not tensor.is_global
    assert isinstance(tensor.orig_guard.record.check, TensorIs)
    number = by_name["options['k']", "CONSTANT_MATCH"]
    assert number.value == 3 and number.derived_guard_types == ("EQUALS_MATCH",)
    assert any(e.is_global and e.value == FACTOR for e in entries)
    assert by_name["", "GLOBAL_STATE"].has_value is False


def test_parts_of_modules_say_so():
    entries = {e.name: e.orig_guard.source for e in entries_of(Scaled().forward, torch.ones(2, 3))}
    linear = next(source for name, source in entries.items() if "['linear']" in name)
    assert linear.is_unspecialized_nn_module() and linear.is_unspecialized_builtin_nn_module()
    factor = entries["self.factor"]
    assert factor.is_unspecialized_nn_module() and not factor.is_unspecialized_builtin_nn_module()
    assert not entries["x"].is_unspecialized_nn_module()


@pytest.mark.parametrize("answer", [[], [1, 2], None])
def test_an_answer_that_does_not_fit_is_an_error(answer):
    compiled = ours(lambda gm, _: gm.forward, lambda _entries: answer)(lambda x: x + 1)
    with pytest.raises(TypeError, match="guard_filter_fn|NoneType"):
        compiled(torch.ones(2))


def test_symbolic_sizes_need_no_guards():
    graphs = []
    compiled = fx.optimize(
        lambda gm, _: graphs.append(gm) or gm.forward,
        options=fx.CaptureOptions(dynamic=True, guard_filter_fn=fx.skip_all_guards_unsafe),
    )(lambda x: x * x.shape[0] if x.shape[0] > 2 else x)
    assert [compiled(torch.ones(n)).tolist() for n in (3, 4)] == [[3.0] * 3, [4.0] * 4]
    assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]  # the other branch is not asked for
    assert len(graphs) == 1


def test_what_the_filter_raises_is_raised():
    def refuse(_entries):
        raise LookupError("no filter today")

    with pytest.raises(LookupError, match="no filter today"):
        ours(lambda gm, _: gm.forward, refuse)(lambda x: x + 1)(torch.ones(2))
