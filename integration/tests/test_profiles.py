"""What a profile of ``torch.profiler`` shows of compiled code."""

import pytest
import torch
from torch.autograd.profiler import record_function
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

import fxstack
from fxstack.refusals import can_repeat
from fxstack_capture.calls.rules.torch.profiler_regions import _note_idle
from fxstack_capture.guards.tensor_build import TENSOR_CHECKS


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.nn.functional.gelu(self.linear(x)).softmax(-1)


X = torch.randn(4, 8)


def names(run):
    """The names in a profile of a call of ``run``, which was compiled before."""
    if not TENSOR_CHECKS.wait():
        pytest.skip(f"regions need the compiled checks: {TENSOR_CHECKS.why_not}")
    run()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        run()
    return {event.key for event in seen.key_averages()}


@pytest.fixture(scope="module")
def step():
    net = fxstack.compile(Net())
    return names(lambda: net(X).sum().backward())


def test_a_compiled_region_is_named_by_the_users_function(step):
    (region,) = [name for name in step if name.startswith("Torch-Compiled Region: ")]
    assert region == f"Torch-Compiled Region: Net.forward ({__file__}:{Net.forward.__code__.co_firstlineno})"


def test_the_autograd_function_has_torchs_name(step):
    assert {"CompiledFunction", "CompiledFunctionBackward"} <= step


def test_kernels_are_named_by_their_operators(step):
    fused = [name for name in step if name.startswith("fused_")]
    assert any("gelu" in name for name in fused)
    assert any("softmax_backward" in name for name in fused)


def test_operators_that_the_host_program_calls_are_there(step):
    assert "aten::mm" in step or "aten::addmm" in step


def test_inference_has_regions_and_kernels():
    with torch.no_grad():
        net = fxstack.compile(Net())
        seen = names(lambda: net(X))
    assert any(name.startswith("Torch-Compiled Region: Net.forward") for name in seen)
    assert any(name.startswith("fused_") for name in seen)


def test_an_exception_ends_the_region():
    @fxstack.compile(backend="eager")
    def index(x, at):
        return x[at] + 1

    def both():
        index(X, torch.tensor([0]))
        with pytest.raises(IndexError):
            index(X, torch.tensor([9]))

    if not TENSOR_CHECKS.wait():
        pytest.skip(f"regions need the compiled checks: {TENSOR_CHECKS.why_not}")
    both()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        both()
        X.sin()
    (outside,) = [event for event in seen.events() if event.key == "aten::sin"]
    assert outside.cpu_parent is None
    assert [e.count for e in seen.key_averages() if e.key.startswith("Torch-Compiled Region: ")] == [2]


def region(x):
    with record_function("outer"):
        y = x.exp()
        with torch.profiler.record_function("inner", "args"):
            y = y.sin()
        y = y * 2
    return y.cos()


@record_function("decorator")
def decorated(x):
    return x.exp() * 2


KEPT = record_function("kept")


def kept(x):
    with KEPT:
        y = x.exp()
    return y.sin()


def fast(x):
    with torch._C._profiler._RecordFunctionFast("fast"):
        y = x.exp()
    return y.sin()


def twice(x):
    for layer in range(2):
        with record_function(f"layer {layer}"):
            x = x.exp().tanh()
    return x


def checkpointed(x):
    def block(x):
        with record_function("block"):
            return x.exp().sin()

    return checkpoint(block, x, use_reentrant=False) + 1


def branches(x):
    def branch(x):
        with record_function("branch"):
            return x.sin()

    return torch.cond(x.sum() > 0, branch, torch.cos, (x,)) * 2


def mapped(x):
    def row(x):
        with record_function("row"):
            return x.sin() * 2

    return torch.vmap(row)(x)


def caught(x):
    try:
        with record_function("caught"):
            x = x.exp()
            raise ValueError
    except ValueError:
        return x.sin()


def broken(x):
    with record_function("broken"):
        x = x.exp()
        fxstack.graph_break()
        x = x.sin()
    with record_function("after"):
        return x.cos()


RANGES = {
    region: {"outer", "inner"},
    decorated: {"decorator"},
    kept: {"kept"},
    fast: {"fast"},
    twice: {"layer 0", "layer 1"},
    checkpointed: {"block"},
    branches: {"branch"},
    mapped: {"row"},
    caught: {"caught"},
    broken: {"broken", "after"},
}


def profiled(fn, x, **options):
    """The events of a profile of a second call of the compiled ``fn``, and of its backward."""
    fxstack.reset()
    compiled = fxstack.compile(fn, **options)
    torch.testing.assert_close(compiled(x), fn(x))
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        result = compiled(x)
        if x.requires_grad:
            result.sum().backward()
    return seen.events()


KEEP = {"profiler_ranges": True}
ROWS = [(fn, "default", False) for fn in RANGES] + [
    (fn, backend, grad)
    for fn in (region, checkpointed)
    for backend, grad in (("eager", True), ("aot_eager", False), ("aot_eager", True), ("default", True))
]


@pytest.mark.parametrize(("fn", "backend", "grad"), ROWS)
def test_ranges_of_the_program_are_in_the_profile(fn, backend, grad):
    options = {} if backend == "default" else {"backend": backend}
    x = torch.rand(4, 3, requires_grad=grad)
    events = profiled(fn, x, fullgraph=fn is not broken, options=KEEP, **options)
    assert RANGES[fn] <= {event.name for event in events}


def test_kernels_are_in_their_ranges():
    def children(name):
        return [event.name for event in events if event.cpu_parent and event.cpu_parent.name == name]

    events = profiled(region, X, options=KEEP)
    outer, inner = children("outer"), children("inner")
    assert [name.startswith("fused_") for name in outer] == [True, False, True]
    assert outer[1] == "inner"
    assert len(inner) == 1
    assert inner[0].startswith("fused_sin")
    kernels = [event for event in events if event.name.startswith("fused_cos")]
    assert not any(event.cpu_parent.name in {"outer", "inner"} for event in kernels)


def test_without_the_option_ranges_cost_nothing(caplog):
    _note_idle.cache_clear()
    with caplog.at_level("INFO", "fxstack_capture"):
        events = profiled(region, X)
    assert sum("without the option profiler_ranges" in text for text in caplog.messages) == 1
    assert not {"outer", "inner"} & {event.name for event in events}
    assert sum(event.name.startswith("fused_") for event in events) == 1


def test_the_setting_of_torch_keeps_ranges():
    with torch._dynamo.config.patch(capture_profiler_record_function=True):
        events = profiled(region, X)
    assert {"outer", "inner"} <= {event.name for event in events}


@pytest.mark.parametrize("backend", ["eager", "default"])
def test_an_error_ends_a_range(backend):
    def index(x, at):
        with record_function("range"):
            x = x[at]
        return x * 2

    options = {} if backend == "default" else {"backend": backend}
    compiled = fxstack.compile(index, options=KEEP, **options)
    compiled(X, torch.tensor([0]))
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        with pytest.raises(IndexError):
            compiled(X, torch.tensor([9]))
        with record_function("next"):
            X + 1
    ends = [event.time_range.end for event in seen.events() if event.name == "range"]
    (following,) = (event for event in seen.events() if event.name == "next")
    assert ends
    assert max(ends) <= following.time_range.start
    assert following.cpu_parent is None


def test_programs_from_disk_have_ranges(tmp_path, monkeypatch):
    monkeypatch.setenv("FXSTACK_CACHE_DIR", str(tmp_path))
    for _ in range(2):
        events = profiled(region, torch.rand(4, 3, requires_grad=True), options=KEEP)
        assert {"outer", "inner"} <= {event.name for event in events}


class Recorder:
    def __init__(self):
        self.open = {}

    def start(self, name):
        self.open[name] = record_function(name)
        self.open[name].__enter__()

    def stop(self, name):
        self.open.pop(name).__exit__(None, None, None)


@pytest.mark.parametrize("options", [{}, KEEP])
def test_plain_python_may_begin_or_end_a_range(options):
    recorder = Recorder()

    def both(x):
        recorder.start("a")
        y = x.sin()
        fxstack.graph_break()
        recorder.stop("a")
        return y

    def begins(x):
        recorder.start("b")
        return x.sin()

    def ends(x):
        x = x.sin()
        recorder.stop("b")
        return x

    def shares(x):
        with KEPT:
            x = x.sin()
            fxstack.graph_break()
        return x

    def call(fn):
        assert torch.equal(fxstack.compile(fn, backend="eager", options=options)(X), X.sin())

    with profile(activities=[ProfilerActivity.CPU]) as seen:
        call(both)
        call(begins)
        ends(X)
        begins(X)
        call(ends)
        call(shares)
        with KEPT, record_function("next"):
            X + 1
    assert not recorder.open
    parents = [event.cpu_parent.name for event in seen.events() if event.name == "next"]
    assert parents == ["kept"]


def two_results(x):
    with record_function("outer"):
        y = x.sin()
        return y, y.exp()


@pytest.mark.parametrize("options", [{}, KEEP])
def test_graphs_with_ranges_may_run_again(options):
    """For a hook between two results, and for second derivatives."""

    def gradients(fn):
        x = torch.arange(3.0, requires_grad=True)
        y, z = fn(x)
        y.register_hook(lambda grad: grad * 2)
        (hooked,) = torch.autograd.grad(z.sum(), x, retain_graph=True)
        (first,) = torch.autograd.grad(fn(x)[1].sum(), x, create_graph=True)
        return hooked, torch.autograd.grad(first.sum(), x)[0]

    compiled = fxstack.compile(two_results, backend="aot_eager", options=options)
    for found, wanted in zip(gradients(compiled), gradients(two_results), strict=True):
        torch.testing.assert_close(found, wanted)
    for _, graph in fxstack.compile_log(compiled).graphs:
        assert can_repeat(graph.graph_module)
