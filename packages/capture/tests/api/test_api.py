"""What users call: optimize, capture, explain, disable, graph_break, reset; errors say what, where and how to fix."""

import contextlib
import copy
import functools
import pickle
import subprocess
import sys
import threading
import types
import warnings

import pytest
import torch
from counting import Counting

import fxstack_capture as fx
from fxstack_capture import native
from fxstack_capture.driver.errors import RecompileLimitError, TracingWarning
from fxstack_interchange import InputKind

X = torch.tensor([[1.0, 2.0], [3.0, 4.0]])


def noisy(x):
    y = x + 1
    print("noise", file=sys.stderr)
    return y * 2


@fx.optimize()
def named(x):
    return x * 2


def test_function_compiles_once_and_runs_the_graph():
    backend = Counting()
    fn = fx.optimize(backend)(lambda x, k=2: x * k)
    assert torch.equal(fn(X), X * 2) and torch.equal(fn(X), X * 2)
    assert (len(backend.graphs), backend.calls) == (1, 2)


class Breaking(torch.nn.Module):
    def forward(self, x):
        fx.graph_break()
        return x


def test_functions_are_copied_and_pickled_as_functions_are():
    assert copy.deepcopy([named])[0] is copy.copy(named) is named
    assert pickle.loads(pickle.dumps(named)) is named
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(fx.optimize()(lambda x: x))
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(fx.optimize()(functools.partial(torch.add, other=1)))


def test_methods_are_copied_with_their_object():
    model = torch.nn.Linear(2, 2)
    model.twice = fx.optimize()(types.MethodType(lambda self, x: self(x) * 2, model))
    alternate = copy.deepcopy(model)
    torch.nn.init.ones_(alternate.weight)
    assert alternate.twice.__wrapped__.__self__ is alternate
    assert torch.equal(alternate.twice(torch.ones(2)), alternate(torch.ones(2)) * 2)
    assert torch.equal(model.twice(torch.ones(2)), model(torch.ones(2)) * 2)


def test_other_types_and_constants_compile_again():
    backend = Counting()
    fn = fx.optimize(backend)(lambda x, mode: x * 2 if mode == "a" else x + 1)
    assert torch.equal(fn(X, "a"), X * 2) and torch.equal(fn(X, "b"), X + 1)
    assert torch.equal(fn(X.int(), "a"), X.int() * 2)
    assert len(backend.graphs) == 3


def test_objects_that_cannot_be_made_again_are_no_whole_graph():
    def f(x):
        return x + 1, threading.Lock()

    with pytest.raises(fx.Unsupported, match="class _thread.lock|lock leaves the compiled code"):
        fx.optimize(fullgraph=True)(f)(X)


def test_decorator_keeps_name_and_documentation():
    @fx.optimize()
    def double(x):
        """Twice."""
        return x * 2

    assert (double.__name__, double.__doc__) == ("double", "Twice.")


def test_method_decorator():
    class Scaler:
        k = 3

        @fx.optimize()
        def scale(self, x):
            return x * self.k

    assert torch.equal(Scaler().scale(X), X * 3)


def test_sizes_become_dynamic_when_they_change():
    backend = Counting()
    fn = fx.optimize(backend)(lambda x: (x * x.shape[0]).sum(0))
    for n in (2, 3, 4, 5, 6):
        x = torch.randn(n, 3)
        assert torch.allclose(fn(x), (x * n).sum(0))
    assert len(backend.graphs) == 2
    assert any(isinstance(i, torch.SymInt) or isinstance(i.shape[0], torch.SymInt) for i in backend.inputs[1])


def test_dynamic_from_the_start_and_never():
    for dynamic, graphs in ((True, 1), (False, 3)):
        backend = Counting()
        fn = fx.optimize(backend, dynamic=dynamic)(lambda x: x * 2)
        for n in (3, 4, 5):
            fn(torch.randn(n, 2))
        assert len(backend.graphs) == graphs


class TestModules:
    def make(self):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
        return model, fx.optimize()(model)

    def test_same_state(self):
        model, compiled = self.make()
        assert list(compiled.state_dict()) == list(model.state_dict())
        assert [*map(id, compiled.parameters())] == [*map(id, model.parameters())]
        compiled.eval()
        assert not model.training
        compiled.extra = 1
        assert model.extra == 1
        assert isinstance(compiled, torch.nn.Sequential) and compiled[0] is model[0]

    def test_loads_what_torch_compile_saves(self):
        model, compiled = self.make()
        other, _ = self.make()
        saved = {f"_orig_mod.{name}": value * 2 for name, value in other.state_dict().items()}
        compiled.load_state_dict(saved)
        assert all(torch.equal(v, saved[f"_orig_mod.{k}"]) for k, v in model.state_dict().items())
        compiled.load_state_dict(torch.compile(other).state_dict())
        compiled.load_state_dict(other.state_dict())
        assert torch.equal(model[0].weight, other[0].weight)

    def test_trains_like_eager(self):
        model, compiled = self.make()
        alternate = copy.deepcopy(model)
        for net in (compiled, alternate):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for _ in range(3):
                optimizer.zero_grad()
                net(X).square().mean().backward()
                optimizer.step()
        for (name, a), b in zip(model.state_dict().items(), alternate.state_dict().values()):
            assert torch.allclose(a, b), name

    @pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
    def test_copies_and_pickles_are_compiled(self, copied):
        model, compiled = self.make()
        other = copied(compiled)
        assert other._orig_mod is not compiled._orig_mod
        assert torch.allclose(other(X), model(X), atol=1e-6)
        with pytest.raises(fx.Unsupported, match="graph_break"):
            copied(fx.optimize(fullgraph=True)(Breaking()))(X)

    def test_without_a_name_for_the_backend_the_original_is_pickled(self):
        model = torch.nn.Linear(2, 2)
        compiled = fx.optimize(lambda graph, inputs: graph)(model)
        assert type(pickle.loads(pickle.dumps(compiled))) is torch.nn.Linear

    def test_hooks_and_forward(self):
        model, compiled = self.make()
        seen = []
        model.register_forward_hook(lambda m, args, out: seen.append(out.shape) or out + 1)
        compiled.eval()
        assert torch.allclose(compiled(X), model(X))
        assert len(seen) == 2
        assert torch.allclose(compiled.forward(X), model.forward(X))


class TestCapture:
    def test_whole_graph_with_signature(self):
        model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).eval()
        captured = fx.capture(model, X)
        assert torch.equal(captured(X), model(X))
        names = {spec.target for spec in captured.signature.inputs_of(InputKind.PARAMETER)}
        assert names == {"0.weight", "0.bias", "1.weight", "1.bias"}
        assert len(captured.signature.inputs_of(InputKind.USER_INPUT)) == 1
        assert len(captured.guards) > 3 and "def " in captured.code

    def test_error_says_what_why_fix_and_where(self):
        with pytest.raises(fx.Unsupported) as caught:
            fx.capture(noisy, X)
        text = str(caught.value)
        assert "print" in text and "why: " in text and "fix: " in text
        assert f'File "{__file__}", line {noisy.__code__.co_firstlineno + 2}, in noisy' in text
        assert caught.value.record.reason.id == "side-effect-call"

    def test_calls_that_the_graph_is_not_for(self):
        def of_size(x, k=2):
            return x * k if x.shape[0] > 1 else x.cos()

        captured = fx.capture(of_size, X)
        assert torch.equal(captured(torch.ones_like(X)), torch.ones_like(X) * 2)
        others = {"sizes is": X[:1], "dtype is": X.double(), "requires_grad is": X.clone()}
        others["requires_grad is"].requires_grad_()
        for found, other in others.items():
            with pytest.raises(fx.GuardError, match=rf"of_size.*x: must be.*{found}") as caught:
                captured(other)
            assert "captured: x: float32[2, 2]" in str(caught.value) and "fix: " in str(caught.value)
        with pytest.raises(fx.GuardError, match="k: must be 2, but it is 3"):
            captured(X, k=3)
        with pytest.raises(fx.GuardError, match="grad mode was True"), torch.no_grad():
            captured(X)
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
            captured()

    def test_calls_of_a_module_that_the_graph_is_not_for(self):
        captured = fx.capture(torch.nn.Dropout(0.5), X)
        with pytest.raises(fx.GuardError, match=r"Dropout.*sizes is(?s:.*)captured: input: float32"):
            captured(X[:1])
        state = {"calls": 0}

        def counts(x):
            state["calls"] += 1
            return x * state["calls"]

        captured = fx.capture(counts, X)
        assert torch.equal(captured(X), X)
        with pytest.raises(fx.GuardError, match=r"\['calls'\]: must be 0, but it is 1"):
            captured(X)

    def test_the_programs_own_exception(self):
        with pytest.raises(ZeroDivisionError):
            fx.capture(lambda x: x * (1 // 0), X)


def test_fullgraph_raises_at_the_break():
    with pytest.raises(fx.Unsupported, match="side-effect-call"):
        fx.optimize(fullgraph=True)(noisy)(X)


def test_explain_lists_graphs_breaks_and_guards():
    found = fx.explain(noisy)(X)
    assert (len(found.graphs), len(found.breaks), found.operators) == (2, 1, 2)
    assert "1 graph break(s)" in str(found) and "side-effect-call" in str(found)


def test_disable_and_graph_break(capsys):
    backend = Counting()

    @fx.disable
    def plain(x):
        return x + torch.compiler.is_compiling() + fx.is_compiling()

    @fx.optimize(backend)
    def f(x):
        y = plain(x * 2)
        fx.graph_break()
        return y + fx.is_compiling()

    assert torch.equal(f(X), X * 2 + 1)
    assert len(backend.graphs) == 2


def test_torchs_annotation_is_honoured():
    backend = Counting()
    kept = lambda x: x + 1
    kept._torchdynamo_disable = True
    assert torch.equal(fx.optimize(backend)(lambda x: kept(x * 2) * 3)(X), (X * 2 + 1) * 3)
    assert len(backend.graphs) == 2


def test_reset_compiles_again():
    backend = Counting()
    fn = fx.optimize(backend)(lambda x: x * 2)
    fn(X)
    fx.reset()
    fn(X)
    assert len(backend.graphs) == 2


def test_backend_errors_name_the_backend_and_the_function():
    def broken_backend(graph_module, example_inputs):
        raise ValueError("no")

    def target(x):
        return x * 2

    with pytest.raises(fx.BackendError, match=r"broken_backend.*target.*ValueError: no"):
        fx.optimize(broken_backend)(target)(X)
    with pytest.raises(fx.BackendError, match="not a callable"):
        fx.optimize(lambda g, e: 3)(target)(X)


def test_recompile_limit_warns_once_or_raises():
    fn = fx.optimize()(lambda x, k: x * len(k))
    with pytest.warns(TracingWarning, match="recompile_limit"):
        for n in range(12):
            assert torch.equal(fn(X, "k" * n), X * n)
    strict = fx.CaptureOptions(recompile_limit=2, fail_on_recompile_limit=True)
    fn = fx.optimize(options=strict)(lambda x, k: x * len(k))
    with pytest.raises(RecompileLimitError, match="dynamic=True"):
        for n in range(4):
            fn(X, "k" * n)


def test_state_changes_are_seen_by_guards():
    scale = {"k": 2}
    fn = fx.optimize()(lambda x: x * scale["k"])
    assert torch.equal(fn(X), X * 2)
    scale["k"] = 5
    assert torch.equal(fn(X), X * 5)


def test_observer_is_told():
    class Observer:
        traces, breaks = 0, []

        def on_trace(self, seconds):
            assert seconds > 0
            self.traces += 1

        def on_break(self, record):
            self.breaks.append(record.reason.id)

    observer = Observer()
    fx.optimize(observer=observer)(noisy)(X)
    assert observer.traces >= 2 and observer.breaks == ["side-effect-call"]


def test_not_a_callable():
    with pytest.raises(TypeError, match="expected a function or module, got 3"):
        fx.optimize()(3)
    with pytest.raises(TypeError, match="disable"):
        fx.disable(3)


def test_exceptions_are_eagers():
    def f(x):
        y = x * 2
        return y @ torch.ones(5, 5)

    with pytest.raises(RuntimeError) as expected:
        f(X)
    with pytest.raises(RuntimeError) as found:
        fx.optimize()(f)(X)
    assert str(found.value) == str(expected.value)
    assert found.traceback[-1].lineno == expected.traceback[-1].lineno


def test_threads_compile_at_once():
    fns = [fx.optimize()(lambda x, k=k: torch.sin(x) * k) for k in range(4)]
    errors = []

    def work(k):
        try:
            for n in range(2, 5):
                x = torch.randn(n, 2)
                assert torch.allclose(fns[k](x), torch.sin(x) * k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k % 4,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


SILENT = """
import sys, torch, fxstack_capture
assert "torch._dynamo" not in sys.modules
assert "torch._inductor" not in sys.modules
model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
fxstack_capture.optimize()(model)(torch.randn(4, 2)).sum().backward()
loaded = sys.modules.get("torch._dynamo.utils")
assert loaded is None or not loaded.counters["frames"], "the incumbent compiled a frame"
"""


def test_importing_loads_no_incumbent_and_none_of_its_frames_compile():
    subprocess.run([sys.executable, "-c", SILENT], check=True)


def test_defects_of_tracing_are_loud_and_harmless(monkeypatch):
    from fxstack_capture.driver.attempts import attempt

    def broken(*args):
        raise AttributeError("defect")

    monkeypatch.setattr(attempt, "draft_return", broken)
    with pytest.warns(TracingWarning, match="AttributeError: defect; it runs in plain Python"):
        assert torch.equal(fx.optimize()(lambda x: x * 2)(X), X * 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(fx.Unsupported, match="defect"):
            fx.optimize(fullgraph=True)(lambda x: x * 2)(X)


def test_torchs_disable_reaches_what_is_called():
    backend = Counting()

    def inner(x):
        return x * 5

    @torch.compiler.disable
    def kept(x, *rest, k=2, **more):
        return inner(x) + k + sum(rest) + more["z"]

    fn = fx.optimize(backend)(lambda x: kept(x * 2, 1, 2, k=3, z=4) * 3)
    assert torch.equal(fn(X), (X * 10 + 10) * 3)
    assert len(backend.graphs) == 2


def test_what_a_first_import_runs_is_not_compiled(tmp_path, monkeypatch):
    (tmp_path / "half_there.py").write_text(
        "import torch\ndef made(x):\n    return x * 2 + 1\nVALUE = made(torch.ones(2))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    backend = Counting()

    def imports(x):
        import half_there  # noqa: PLC0415

        return half_there.made(x) + half_there.VALUE

    try:
        assert torch.equal(fx.optimize(backend)(imports)(X), X * 2 + 4)
    finally:
        sys.modules.pop("half_there", None)
    assert [tuple(args[0].shape) for args in backend.inputs] == [(2, 2)]


WITHOUT_EXTENSION = """
import sys, warnings
sys.modules["fxstack_capture._native"] = None
import torch, fxstack_capture as fx
model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
x = torch.randn(4, 2)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    compiled = fx.optimize()(model)
(message,) = [str(w.message) for w in seen]
assert "C compiler" in message and "plain Python" in message, message
assert torch.equal(compiled(x), model(x))
assert torch.equal(fx.capture(model, x)(x), model(x))
def f(x):
    y = x + sorted([3, 1], key=lambda v: -v)[0]
    print("hi", file=sys.stderr)
    return y
found = fx.explain(f)(x)
assert (len(found.graphs), len(found.breaks)) == (1, 1), str(found)
"""


def test_without_the_c_extension():
    subprocess.run([sys.executable, "-c", WITHOUT_EXTENSION], check=True)


@pytest.mark.parametrize(
    "file", [name for name in ("<stdin>", "<cell 1>", "<ipython-input-1>", "<string>", "<doctest a>")]
)
def test_code_without_a_file_is_compiled_too(file):
    namespace = {}
    exec(compile("def program(x):\n    return x.sin() + 1\n", file, "exec"), namespace)
    backend = Counting()
    fx.optimize(backend)(namespace["program"])(torch.ones(2))
    assert len(backend.graphs) == 1


@contextlib.contextmanager
def without_gradients():
    with torch.no_grad():
        yield


LAYER = torch.nn.Linear(2, 2)


@pytest.mark.parametrize(
    "fn",
    [
        torch.vmap(torch.sin),
        torch.func.grad(lambda x: x.sin().sum()),
        torch.func.vmap(LAYER),
        torch.compile(lambda x: x.sin() + 1, backend="eager"),
        fx.optimize(Counting())(lambda x: x.sin() + 1),
        without_gradients()(lambda x: LAYER(x)),
        functools.partial(torch.utils.checkpoint.checkpoint, torch.sin, use_reentrant=False),
        torch.fx.symbolic_trace(LAYER).forward,
        torch.fft.fft,
    ],
    ids=[
        "vmap",
        "grad",
        "vmap-of-module",
        "torch-compile",
        "optimize",
        "no_grad",
        "checkpoint",
        "symbolic_trace",
        "torch-function",
    ],
)
def test_functions_that_libraries_make_are_compiled(fn):
    backend = Counting()
    optimised = fx.optimize(backend, fullgraph=True)(fn)
    for _ in range(2):
        torch.testing.assert_close(optimised(X), fn(X))
    assert len(backend.graphs) == 1


def test_a_compiled_module_takes_another_original():
    inner = torch.nn.Linear(3, 3)
    compiled = fx.optimize(fullgraph=True)(torch.nn.Sequential(inner))
    x = torch.ones(2, 3)
    compiled(x)
    compiled._orig_mod = inner
    assert torch.equal(compiled(x), inner(x))
    assert compiled.in_features == 3
    assert list(compiled.state_dict()) == ["weight", "bias"]
    assert list(inner.children()) == []


def test_the_c_extension_is_there():
    """Without it most tests are skipped."""
    assert native.AVAILABLE, native.WHY_MISSING
