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
    with pytest.raises(
        ValueError, match="unknown stance 'fast'; choose one of default, force_eager"
    ):
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
