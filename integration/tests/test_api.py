"""fxstack.compile: signature, backends, options, and the text of its errors."""

import copy
import inspect
import io
import pickle
import re
import warnings

import pytest
import torch

import fxstack
import fxstack_partition
from fxstack.report import write_report
from fxstack.settings import make_options
from fxstack.torch_options import names_of_torch
from fxstack_inductor.errors import TRITON_HINT, CudaError, TritonMissing
from fxstack_interchange.torch_facts.settings_table import INDUCTOR, TABLES


def through_a_pickle(module):
    return pickle.loads(pickle.dumps(module))


def through_a_file(module):
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def f(x):
    return torch.sin(x) + 1


X = torch.linspace(-1, 1, 7)


@pytest.mark.parametrize("backend", [None, "inductor", "aot_eager", "eager", lambda gm, _inputs: gm])
def test_backends_agree_with_eager(backend):
    torch.testing.assert_close(fxstack.compile(f, backend=backend)(X), f(X))


def test_backends_are_registered_by_name():
    @fxstack.register_backend(name="counted_here")
    def counted(graph_module, _inputs):
        made.append(graph_module)
        return graph_module.forward

    made = []
    assert torch.equal(fxstack.compile(f, backend="counted_here")(X), f(X))
    assert len(made) == 1
    assert "counted_here" in fxstack.list_backends()
    assert fxstack.lookup_backend("counted_here")(made[0], ()) == made[0].forward
    with pytest.raises(ValueError, match="there is a backend named 'eager' already"):
        fxstack.register_backend(lambda gm, _inputs: gm, "eager")


@pytest.mark.parametrize("api", [fxstack, torch.compiler])
def test_default_backends(api):
    if not hasattr(api, "set_default_backend"):
        pytest.skip("torch 2.11 has none")
    made = []
    backend = lambda gm, _inputs: made.append(gm) or gm.forward
    api.set_default_backend(backend)
    try:
        assert fxstack.get_default_backend() is backend
        assert torch.equal(fxstack.compile(f)(X), f(X))
    finally:
        api.set_default_backend(None)
    fxstack.compile(f)(X)
    assert len(made) == 1
    assert fxstack.get_default_backend() == "inductor"


def test_a_default_backend_must_exist():
    with pytest.raises(ValueError, match="no backend named 'fast'"):
        fxstack.set_default_backend("fast")


def test_compiled_modules_have_a_public_class():
    assert isinstance(fxstack.compile(torch.nn.Linear(2, 2)), fxstack.OptimizedModule)


def test_keywords_are_torch_compile_s():
    ours = inspect.signature(fxstack.compile).parameters
    theirs = inspect.signature(torch.compile).parameters
    for name in ("model", "fullgraph", "dynamic", "backend", "mode", "options", "disable"):
        assert ours[name].kind == theirs[name].kind
        default = theirs[name].default
        if name == "backend" and default == "inductor":  # before torch 2.13, which has None for it
            default = None
        assert ours[name].default == default


def test_decorator_with_and_without_arguments():
    @fxstack.compile
    def g(x):
        return x * 2

    @fxstack.compile(backend="eager")
    def h(x):
        return x * 3

    assert torch.equal(g(X), X * 2)
    assert torch.equal(h(X), X * 3)


def test_disable_returns_the_model_itself():
    assert fxstack.compile(f, disable=True) is f


def test_unknown_backend_lists_the_known_ones():
    with pytest.raises(
        ValueError, match="no backend named 'indutcor'. Known: inductor, aot_eager, aot_eager_decomp"
    ):
        fxstack.compile(f, backend="indutcor")


def test_unknown_mode_and_option_name_the_closest():
    with pytest.raises(ValueError, match="unknown mode 'max-autotun'. Did you mean 'max-autotune'"):
        fxstack.compile(f, mode="max-autotun")
    with pytest.raises(ValueError, match="unknown option 'partitoner'. Did you mean 'partitioner'"):
        fxstack.compile(f, options={"partitoner": "save_all"})


def test_options_reach_the_record():
    assert make_options(None, {"partitioner": "save_all"}).partitioner == "save_all"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("max_autotune", "autotune"),
        ("triton.cudagraphs", "cuda_graphs"),
        ("emulate_precision_casts", "eager_rounding"),
        ("fx_graph_cache", "use_cache"),
    ],
)
def test_torchs_names_of_options_mean_ours(theirs, ours):
    for value in (True, False):
        assert getattr(make_options(None, {theirs: value}).inductor, ours) is value


def test_torchs_options_that_ask_for_what_is_done_anyway():
    assert fxstack.compile(f, options={"epilogue_fusion": True, "fallback_random": True})(X) is not None


def test_torchs_options_without_effect_are_named():
    with pytest.warns(
        UserWarning, match=r"no effect here: cpp.threads=2 \(.*; shape_padding=True \("
    ) as seen:
        fxstack.compile(f, options={"shape_padding": True, "cpp.threads": 2, "freezing": True})
    assert seen[0].filename == __file__


def test_torchs_switches_are_true_or_false():
    with pytest.raises(ValueError, match="option 'max_autotune' must be True or False, not 'x'"):
        fxstack.compile(f, options={"max_autotune": "x"})


def test_names_of_torch_are_those_of_the_installed_torch():
    assert SETTINGS - names_of_torch() == set()


SETTINGS = torch._inductor.config._config.keys() - {"TYPE_CHECKING"}  # a name that torch's module imports
OTHERS = sorted(SETTINGS - TABLES[INDUCTOR].keys() - set(fxstack.list_options()))


def warns_of(name, value):
    with pytest.warns(UserWarning, match=r"no effect here: .*\(") as seen:
        make_options(None, {name: value})
    return len(seen)


@pytest.mark.parametrize(
    "name", [*OTHERS[::40], "max-autotune-gemm-backends", "triton.cudagraph-support-input-mutation"]
)
def test_other_options_of_torch_are_reported_with_a_reason(name):
    assert warns_of(name, "ATEN") == 1


def test_modes_of_torch_are_known():
    with pytest.warns(UserWarning, match="mode='lite' has no effect here"):
        assert torch.equal(fxstack.compile(f, mode="lite", backend="eager")(X), f(X))
    for mode in torch._inductor.list_mode_options():
        make_options(None if mode == "lite" else mode, None)


@pytest.mark.parametrize(
    ("mode", "options", "text"),
    [
        (None, {"no_such_option": 1}, "unknown option 'no_such_option'"),
        ("no-such-mode", None, "unknown mode 'no-such-mode'"),
        (None, {"epilogue_fusion": 3}, "must be True or False"),
        (None, {"partitioner": "bugdet"}, "unknown partitioner 'bugdet'. Did you mean 'budget'"),
        (None, {"solver": "sipy"}, "unknown solver 'sipy'. Did you mean 'scipy'"),
        (None, {"target": "gpu"}, "unknown target 'gpu'.* Known: None, cpu, cuda"),
        (None, {"host": "c"}, "unknown host 'c'"),
        (None, {"partitioner": 3}, "unknown partitioner 3"),
    ],
)
def test_what_is_unknown_is_an_error_of_both_compilers_at_once(mode, options, text):
    for kind in (ValueError, RuntimeError, fxstack.OptionError):
        with pytest.raises(kind, match=text):
            fxstack.compile(f, mode=mode, options=options)


def test_a_budget_reaches_the_partitioner():
    seen = []

    def watched(joint, options):
        seen.append(options.budget)
        return fxstack_partition.budget(joint, options)

    x = X.clone().requires_grad_()
    for options in (
        {"partitioner": watched, "budget": 0.3},
        {"partitioner": "budget", "budget": 0.3},
        {"budget": 0.3},
    ):
        fxstack.compile(f, backend="aot_eager", options=options)(x).sum().backward()
    assert seen == [0.3]
    assert make_options(None, {"budget": 0.3}).partitioner == "budget"
    assert make_options(None, {"budget": None}).partitioner == "min_cut"


def test_dynamic_is_checked():
    with pytest.raises(ValueError, match="dynamic must be True, False or None, not 'yes'"):
        fxstack.compile(f, dynamic="yes")


def test_optimize_is_told_the_backend_first():
    assert torch.equal(fxstack.optimize("eager", fullgraph=True)(f)(X), f(X))


def test_options_for_a_while():
    with fxstack.options(fullgraph=True), pytest.raises(fxstack.Unsupported):
        fxstack.compile(lambda x: x if x.sum() > 0 else -x, backend="eager")(X)


def test_an_error_of_a_backend_names_it():
    def broken(_graph_module, _inputs):
        raise KeyError("boom")

    with pytest.raises(
        fxstack.BackendError, match=r"backend test_an_error\S*broken failed .*KeyError: 'boom'"
    ):
        fxstack.compile(f, backend=broken)(X)


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, through_a_pickle, through_a_file])
def test_copies_and_pickles_of_modules_are_compiled(copied):
    model = torch.nn.Linear(3, 2)
    other = copied(fxstack.compile(model, backend="eager", dynamic=False))
    x = torch.randn(4, 3)
    assert torch.equal(other(x), model(x))
    assert [time.stage for time in fxstack.compile_log(other).times] == ["capture", "backend"]


def test_not_callable_is_a_type_error():
    with pytest.raises(TypeError, match="expected a function or module"):
        fxstack.compile(3)


@pytest.mark.parametrize("partitioner", ["save_all", "min_cut"])
def test_partitioner_by_name_trains(partitioner):
    layer = torch.nn.Linear(7, 3)
    expected = torch.autograd.grad(layer(X).tanh().sum(), layer.weight)[0]
    compiled = fxstack.compile(layer, options={"partitioner": partitioner})
    compiled(X).tanh().sum().backward()
    torch.testing.assert_close(layer.weight.grad, expected)


def test_no_c_compiler_in_the_backward_runs_it_in_eager(monkeypatch, tmp_path):
    # the forward is a matmul; the gradient of the bias is a kernel of ours
    program = torch.nn.functional.linear

    x, w, b = torch.randn(3, 3), torch.randn(3, 3), torch.randn(3, requires_grad=True)
    expected = torch.autograd.grad(program(x, w, b).square().sum(), b)[0]
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("FXSTACK_CC", str(tmp_path / "no-such-compiler"))
    compiled = fxstack.compile(lambda x, w, b: program(x, w, b))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loss = compiled(x, w, b).square().sum()
        before = len([w for w in caught if "compiler" in str(w.message)])
        loss.backward()
    assert before == 0
    assert len([w for w in caught if "compiler" in str(w.message)]) == 1
    torch.testing.assert_close(b.grad, expected)


def test_no_c_compiler_is_one_clear_warning_and_eager_results(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("FXSTACK_CC", str(tmp_path / "no-such-compiler"))
    monkeypatch.setenv("FXSTACK_INDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = fxstack.compile(lambda x: torch.cos(x) * 3)(X)
    torch.testing.assert_close(result, torch.cos(X) * 3)
    texts = [str(w.message) for w in caught if "fxstack" in str(w.message)]
    assert len(texts) == 1
    assert "compiler" in texts[0]
    assert "install" in texts[0].lower()


def test_reduce_overhead_asks_for_cuda_graphs():
    assert make_options("reduce-overhead", None).inductor.cuda_graphs
    assert not make_options(None, None).inductor.cuda_graphs
    assert not make_options("reduce-overhead", {"cuda_graphs": False}).inductor.cuda_graphs


@pytest.mark.parametrize("error", [TritonMissing(TRITON_HINT), CudaError("the CUDA driver failed")])
def test_what_a_gpu_needs_and_is_not_there_costs_only_speed(monkeypatch, error):
    def unavailable(*_, **__):
        raise error

    monkeypatch.setattr("fxstack_inductor.targets.triton.load.load_triton", unavailable)
    compiled = fxstack.compile(lambda x: x + 1, options={"target": "cuda"})
    with pytest.warns(UserWarning, match=r"CUDA .*The captured graph runs in eager torch"):
        assert compiled(torch.ones(2)).tolist() == [2, 2]


def test_the_environment_turns_compilation_off(monkeypatch):
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    compiled = fxstack.compile(lambda x: x + 1)
    assert compiled(torch.ones(2)).tolist() == [2, 2]
    assert fxstack.compile_log(compiled).graph_count == 0


@pytest.mark.parametrize("name", ["eager", "aot_eager", "inductor"])
def test_backends_are_forced_by_name(name):
    double = fxstack.compile(lambda x: x * 2, backend=lambda gm, _: pytest.fail("not this one"))
    with fxstack.set_stance(force_backend=name):
        assert double(torch.ones(2)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_a_report_goes_to_a_name_or_a_path(kind, tmp_path):
    compiled = fxstack.compile(f)
    compiled(X.clone().requires_grad_()).sum().backward()
    write_report(compiled, kind(tmp_path / "report.html"))
    assert "sin" in (tmp_path / "report.html").read_text()


def test_the_text_of_a_log_fits_on_a_line():
    compiled = fxstack.compile(f)
    compiled(X)
    assert re.fullmatch(r"<CompileLog: 1 graphs, 0 breaks, .* s>", repr(fxstack.compile_log(compiled)))
