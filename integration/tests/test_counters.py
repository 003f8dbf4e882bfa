"""The records of ``torch._dynamo.utils`` while fxstack is installed, beside those of torch's own compiler."""

import pytest
import torch
import torch._dynamo
from torch._dynamo import utils
from torch._dynamo.utils import compile_times, counters, get_compilation_metrics

import fxstack
from fxstack.torch_interop import counters as filled

X = torch.randn(3, 4)


def one_graph(x):
    return x.sin() + x.cos()


def graph_break(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return y + 1


def branch(x):
    return x + 1 if x.sum() > 100 else x - 1


def counted(fn):
    """``frames``, ``stats`` and the number of graph breaks of one call of the compiled ``fn``."""
    torch._dynamo.reset()
    counters.clear()
    torch.compile(fn, backend="eager")(X)
    found = {group: dict(counters[group]) for group in ("frames", "stats")}
    return found, sum(counters["graph_break"].values())


@pytest.fixture
def installed():
    fxstack.install()
    utils.clear_compilation_metrics()
    yield
    fxstack.uninstall()
    counters.clear()
    utils.clear_compilation_metrics()


@pytest.mark.parametrize(
    ("fn", "breaks"), [(one_graph, 0), (graph_break, 1), pytest.param(branch, 1, id="branch, 0 in torch")]
)
def test_the_same_figures_as_torchs_compiler(fn, breaks):
    theirs, _breaks_in_torch = counted(fn)
    fxstack.install()
    try:
        assert counted(fn) == (theirs, breaks)
    finally:
        fxstack.uninstall()


def test_a_graph_break_is_counted_by_its_reason(installed):
    counted(graph_break)
    (reason,) = counters["graph_break"]
    assert "graph_break" in reason


def test_graphs_of_the_default_backend_and_of_the_disk_are_counted(installed, tmp_path, monkeypatch):
    monkeypatch.setenv("FXSTACK_INDUCTOR_CACHE_DIR", str(tmp_path))
    counters.clear()
    for _ in range(2):
        torch._dynamo.reset()
        torch.compile(one_graph)(X)
    assert dict(counters["aot_autograd"]) == {
        "total": 2,
        "ok": 2,
        "autograd_cache_miss": 1,
        "autograd_cache_hit": 1,
    }
    assert dict(counters["inductor"]) == {"fxgraph_cache_miss": 1, "fxgraph_cache_hit": 1}


def test_without_install_nothing_is_counted():
    counters.clear()
    fxstack.compile(one_graph, backend="eager")(X)
    assert not counters


ALIKE = """
    compile_id co_filename cache_size accumulated_cache_size graph_op_count graph_input_count
    is_forward fail_type has_guarded_code is_runtime pytorch_version
""".split()


def measured(fn, *sizes):
    """Return the metrics of calls of the compiled ``fn`` with tensors of these sizes, compile ids from 0 on."""
    torch._dynamo.reset()
    utils.clear_compilation_metrics()
    compiled = torch.compile(fn, backend="eager", dynamic=False)
    for size in sizes:
        compiled(torch.ones(size))
    found = [{name: getattr(metrics, name) for name in ALIKE} for metrics in get_compilation_metrics()]
    first = int(found[0]["compile_id"].split("/")[0])
    for metrics in found:
        frame, _, again = metrics["compile_id"].partition("/")
        metrics["compile_id"] = f"{int(frame) - first}/{again}"
    return found


@pytest.mark.parametrize("fn", [one_graph, graph_break])
def test_the_same_metrics_as_torchs_compiler(fn):
    theirs = measured(fn, 3, 4)
    fxstack.install()
    try:
        assert measured(fn, 3, 4) == theirs
    finally:
        fxstack.uninstall()


def test_metrics_of_a_training_step(installed):
    torch._dynamo.reset()
    torch.compile(lambda x: x.sin().exp(), options={"use_cache": False})(
        X.clone().requires_grad_()
    ).sum().backward()
    forward, backward = get_compilation_metrics()
    assert (forward.compile_id, forward.is_forward) == (backward.compile_id, True)
    assert backward.is_forward is False
    assert 0 < backward.backward_cumulative_compile_time_us <= backward.duration_us
    assert 0 < forward.inductor_cumulative_compile_time_us < forward.dynamo_cumulative_compile_time_us
    assert forward.guard_count > 0
    names = {"_compile.compile_inner", "compile_fx_inner", "backward._backward_impl", "bytecode_tracing"}
    assert names <= set(compile_times("csv")[0])
    assert "compile_fx_inner" in compile_times("str", aggregate=True)
    assert utils.calculate_time_spent()["total_wall_time"] > 0
    torch._dynamo.reset()
    assert compile_times("csv") == ([], [])


def test_an_error_is_the_reason_of_a_failed_compilation(installed):
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(graph_break, backend="eager", fullgraph=True)(X)
    (metrics,) = get_compilation_metrics()
    assert (metrics.fail_type, metrics.has_guarded_code) == ("Unsupported", False)
    assert "graph_break" in metrics.fail_reason


def test_a_recompilation_has_its_reason(installed):
    compiled = torch.compile(lambda x, n: x * n, backend="eager", dynamic=False)
    for n in (2, 3):
        compiled(X, n)
    assert "n" in get_compilation_metrics()[1].recompile_reason


def test_records_wait_for_the_import_of_the_module(installed, monkeypatch):
    counters.clear()
    with monkeypatch.context() as hidden:
        hidden.setattr(filled, "_utils", lambda: None)
        torch.compile(lambda x: x - 7, backend="eager")(X)
        assert (get_compilation_metrics(), dict(counters)) == ([], {})
    filled.RECORDS.hand_over(utils)
    assert [metrics.graph_op_count for metrics in get_compilation_metrics()] == [1]
    assert counters["stats"]["unique_graphs"] == 1


def test_the_backward_has_callbacks_of_its_own(installed):
    heard = []
    callbacks = torch._dynamo.callback.callback_handler
    callbacks.register_start_callback(
        lambda args: heard.append((args.callback_trigger.name, args.compile_id))
    )
    loss = torch.compile(lambda x: x.tan().exp(), options={"use_cache": False})(
        X.clone().requires_grad_()
    ).sum()
    loss.backward()
    torch._dynamo.reset()
    assert callbacks.start_callbacks == []
    (dynamo, first), (backward, second) = heard
    assert (dynamo, backward) == ("DYNAMO", "LAZY_BACKWARD")
    assert first == second
