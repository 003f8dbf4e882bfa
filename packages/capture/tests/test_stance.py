"""What compiled functions do meanwhile, and options for a while."""

import sys
import threading

import pytest
import torch

import fxstack_capture as fx

X, OTHER = torch.ones(3), torch.ones(2, 2, dtype=torch.int)


class Counting(list):
    def __call__(self, graph_module, _):
        self.append(graph_module)
        return graph_module.forward


@pytest.fixture
def graphs():
    return Counting()


@pytest.fixture
def double(graphs):
    return fx.optimize(graphs)(lambda x: x * 2)


def test_force_eager_compiles_and_runs_nothing(double, graphs):
    ran = []
    counting = fx.optimize(lambda gm, _: lambda *a: ran.append(1) or gm(*a))(lambda x: x * 2)
    counting(X)
    with fx.set_stance("force_eager"):
        assert torch.equal(double(X), X * 2)
        counting(X)
    assert (len(graphs), len(ran)) == (0, 1)
    double(X)
    assert len(graphs) == 1


def test_eager_on_recompile_uses_what_there_is(double, graphs):
    double(X)
    with fx.set_stance("eager_on_recompile"):
        assert torch.equal(double(OTHER), OTHER * 2)
    assert len(graphs) == 1
    double(OTHER)
    assert len(graphs) == 2


def test_fail_on_recompile_says_why(double):
    double(X)
    with fx.set_stance("fail_on_recompile"):
        double(X)
        with pytest.raises(fx.RecompileError, match=r"dtype is torch.int32(.|\n)*fix: "):
            double(OTHER)
        with pytest.raises(fx.RecompileError, match="not been compiled yet"):
            fx.optimize()(lambda x: x + 1)(X)
    double(OTHER)


def test_decorator_and_plain_call(double, graphs):
    @fx.set_stance("force_eager")
    def plain():
        return double(X)

    plain()
    assert len(graphs) == 0
    fx.set_stance("force_eager")
    try:
        double(X)
        assert len(graphs) == 0
    finally:
        fx.set_stance("default")
    double(X)
    assert len(graphs) == 1


def test_stances_nest_and_belong_to_a_thread(double, graphs):
    with fx.set_stance("force_eager"):
        with fx.set_stance("default"):
            double(X)
        assert len(graphs) == 1
        thread = threading.Thread(target=double, args=(OTHER,))
        thread.start()
        thread.join()
        assert len(graphs) == 2


def test_unknown_stance():
    with pytest.raises(ValueError, match="unknown stance 'fast'; choose one of default, force_eager"):
        fx.set_stance("fast")


def test_run_never_compiles(double, graphs):
    assert torch.equal(fx.run(double)(X), X * 2)
    assert len(graphs) == 0


def test_patched_options_hold_inside():
    noisy = lambda x: print(x.shape, file=sys.stderr)
    with fx.patch_options(fullgraph=True), pytest.raises(fx.Unsupported):
        fx.optimize()(noisy)(X)
    fx.optimize()(noisy)(X)


def test_unknown_option():
    with pytest.raises(TypeError, match="patch_options: unknown fast; known are "):
        fx.patch_options(fast=True)


def test_eager_then_compile_learns_from_the_first_call(graphs):
    double = fx.optimize(graphs)(lambda x: x * 2)
    with fx.set_stance("eager_then_compile"):
        assert torch.equal(double(torch.ones(3)), torch.ones(3) * 2)
        assert len(graphs) == 0
        for size in (4, 5, 6):
            assert torch.equal(double(torch.ones(size)), torch.ones(size) * 2)
    assert len(graphs) == 1


def test_eager_then_compile_leaves_effects_and_errors_to_the_program(graphs):
    seen = []

    @fx.optimize(graphs)
    def f(x):
        seen.append(x.shape)
        return x @ x

    with fx.set_stance("eager_then_compile"):
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            f(torch.ones(2, 3))
        f(torch.ones(2, 2))
    assert (seen, len(graphs)) == ([(2, 3), (2, 2)], 1)


def test_torchs_stances_are_heeded(double, graphs):
    with torch.compiler.set_stance("force_eager"):
        double(X)
    with torch.compiler.set_stance("eager_on_recompile"):
        double(X)
    assert len(graphs) == 0
    double(X)
    with torch.compiler.set_stance("fail_on_recompile"):
        double(X)
        with fx.set_stance("eager_on_recompile"):
            double(OTHER)
        with pytest.raises(fx.RecompileError):
            double(OTHER)
    double(OTHER)
    assert len(graphs) == 2


@pytest.mark.parametrize("stance", ["eager_then_compile", "aot_eager_then_compile"])
def test_torchs_stances_that_compile_later(double, graphs, stance):
    with torch.compiler.set_stance(stance):
        double(X)
        assert len(graphs) == 0
        double(X)
    assert len(graphs) == 1


def of_torch():
    torch._dynamo.reset()
    return torch.compile, torch.compiler.set_stance


def ours():
    return lambda fn, backend: fx.optimize(backend)(fn), fx.set_stance


def ours_told_by_torch():
    return lambda fn, backend: fx.optimize(backend)(fn), torch.compiler.set_stance


@pytest.mark.parametrize("system", [of_torch, ours, ours_told_by_torch])
def test_a_forced_backend_has_graphs_of_its_own(system):
    compiling, set_stance = system()
    own, other, counts = Counting(), Counting(), []
    double = compiling(lambda x: x * 2, backend=own)

    def call(x):
        assert torch.equal(double(x), x * 2)
        counts.append((len(own), len(other)))

    call(X)
    with set_stance(force_backend=other):
        call(X)
        call(OTHER)
        call(X)
    call(X)
    call(OTHER)
    with set_stance(force_backend="eager"):
        call(X)
    with set_stance(force_backend=other):
        call(OTHER)
    assert counts == [(1, 0), (1, 1), (1, 2), (1, 2), (1, 2), (2, 2), (2, 2), (2, 2)]


def test_a_forced_backend_of_a_module_method_and_keywords(graphs):
    class Scaled(torch.nn.Module):
        def forward(self, x, *, by=2):
            return x * by

    with fx.set_stance(force_backend=graphs):
        assert torch.equal(fx.optimize()(Scaled())(X, by=3), X * 3)
        assert torch.equal(fx.optimize()(Scaled().forward)(x=X), X * 2)
    assert len(graphs) == 2


def test_the_own_backend_forced_is_no_other(graphs):
    double = fx.optimize(graphs)(lambda x: x * 2)
    with fx.set_stance(force_backend=graphs):
        double(X)
    double(X)
    assert len(graphs) == 1


def test_reset_forgets_what_forced_backends_have(double, graphs):
    for count in (1, 2):
        with fx.set_stance(force_backend=(other := Counting())):
            double(X)
            double(X)
        assert (len(other), len(graphs)) == (1, 0), count
        fx.reset()


@pytest.mark.parametrize("system", [of_torch, ours])
def test_only_the_default_stance_has_a_backend(system):
    _, set_stance = system()
    with pytest.raises(RuntimeError, match="force_backend|set_stance"):
        set_stance("force_eager", force_backend="eager")


def test_an_unknown_forced_backend(double):
    with fx.set_stance(force_backend="fast"), pytest.raises(ValueError, match="unknown backend 'fast'"):
        double(X)
    assert torch.equal(double(X), X * 2)


@pytest.mark.parametrize("system", [of_torch, ours, ours_told_by_torch])
def test_warm_functions_may_not_compile(system, graphs):
    compiling, set_stance = system()
    double = compiling(lambda x: x * 2, backend=graphs)
    with set_stance(skip_guard_eval_unsafe=True), pytest.raises(RuntimeError):
        double(X)
    double(X)
    double(OTHER)
    with set_stance(skip_guard_eval_unsafe=True):
        assert torch.equal(double(OTHER), OTHER * 2)
        assert torch.equal(double(X), X * 2)
        with pytest.raises(RuntimeError, match="skip_guard_eval_unsafe"):
            double(X.double())
    double(X.double())
    assert len(graphs) == 3
