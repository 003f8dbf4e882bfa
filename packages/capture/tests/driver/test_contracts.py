"""Shape contracts of compiled callables: one graph for all sizes, and errors instead of recompilations."""

import functools
import warnings

import pytest
import torch
from counting import Counting
from torch import nn
from torch.export import Dim

import fxstack_capture as fx
from fxstack_capture import native

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the native extension")

B, S = Dim("b"), Dim("s", min=2, max=16)


def t(*shape):
    return torch.rand(shape)


def compiled(fn, spec, **more):
    counting = Counting()
    return fx.optimize(counting, dynamic_shapes=spec, **more)(fn), counting


def graphs_over(fn, spec, *calls):
    """How many graphs these calls need; each gives what eager gives."""
    made, counting = compiled(fn, spec)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for args in calls:
            torch.testing.assert_close(made(*args), fn(*args), rtol=0, atol=0)
    return len(counting.graphs)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x, scale=2, *rest, extra=None, **named):
        y = self.linear(x) * scale
        return sum(rest, y) if extra is None else y + extra + sum(named.values())


def branch(x, y):
    return (x * 2, y.view(2, -1).sum(0)) if x.shape[0] else (x, y)


def test_a_function_is_compiled_once():
    spec = {"x": {0: B, 1: S}, "y": {0: 2 * B}}
    calls = [(t(n, s), t(2 * n)) for n, s in ((4, 3), (5, 8), (7, 16), (40, 2))]
    assert graphs_over(lambda x, y: (x * 2, y.view(2, -1).sum(0)), spec, *calls) == 1


def test_sizes_of_zero_and_one_have_their_own():
    assert graphs_over(lambda x: x + 1, {"x": {0: B}}, *[(t(n),) for n in (1, 5, 0, 9, 1)]) == 3


def test_static_sizes_are_compiled_each():
    assert graphs_over(lambda x: x + 1, {"x": {0: Dim.STATIC}}, *[(t(n),) for n in (3, 5, 9)]) == 3


@pytest.mark.parametrize("hint", [Dim.AUTO, Dim.DYNAMIC])
def test_numbers(hint):
    assert graphs_over(lambda x, n: x * n, {"x": None, "n": hint}, *[(t(3), n) for n in (3, 0, -5)]) == 1  # fmt: skip


def test_modules():
    calls = [(t(n, 4), k) for n, k in ((3, 2), (6, 5), (8, 9))]
    assert graphs_over(Scaled(), {"x": {0: B}, "scale": Dim.DYNAMIC}, *calls) == 1


def test_arguments_of_modules_by_any_way():
    spec = {"x": {0: B}, "rest": ({0: B},), "extra": None}
    assert graphs_over(Scaled(), spec, *[(t(n, 4), 2, t(n, 3)) for n in (3, 6)]) == 1
    made, counting = compiled(Scaled(), {"x": {0: B}, "extra": {0: B}, "named": {"more": {0: B}}})
    for n in (3, 6):
        made(x=t(n, 4), extra=t(n, 3), more=t(n, 3))
    assert len(counting.graphs) == 1
    with pytest.raises(fx.ShapeContractError, match=r"named\['more'\].size\(0\) is 4"):
        made(t(3, 4), extra=t(3, 3), more=t(4, 3))


def test_forward_itself_and_methods():
    module = Scaled()
    made, counting = compiled(module, {"x": {0: B}})
    bound, others = compiled(module.forward, {"x": {0: B}})
    for n in (3, 6):
        made.forward(t(n, 4))
        bound(t(n, 4))
    assert len(counting.graphs) == len(others.graphs) == 1


BROKEN = {"range": (t(4, 17), t(8)), "formula": (t(4, 3), t(7)), "equality": (t(4, 3), t(10))}


@pytest.mark.parametrize("case", BROKEN)
def test_a_call_that_breaks_the_contract(case):
    made, counting = compiled(branch, {"x": {0: B, 1: S}, "y": {0: 2 * B}})
    made(t(4, 3), t(8))
    for _ in range(2):
        with pytest.raises(fx.ShapeContractError, match="contract|requires b = 5"):
            made(*BROKEN[case])
    made(t(6, 3), t(12))
    assert len(counting.graphs) == 1


def test_a_program_that_breaks_it_names_the_line():
    made, _ = compiled(lambda x: x * 2 if x.shape[0] > 5 else x, {"x": {0: B}})
    for _ in range(2):
        with pytest.raises(fx.ShapeContractError, match=f'for b = 2(.|\n)*File "{__file__}"'):
            made(t(8))


def test_a_violated_mark_is_an_error_too():
    x = t(4, 3)
    fx.mark_dynamic(x, 0)
    with pytest.raises(fx.ShapeContractError, match="was marked dynamic"):
        fx.optimize()(lambda x: x.view(4, 3) * 2)(x)


def test_what_the_backend_assumes_counts():
    def backend(graph_module, example_inputs):
        if next(i for i in example_inputs if isinstance(i, torch.SymInt)) > 6:
            return graph_module.forward
        return graph_module.forward

    made = fx.optimize(backend, dynamic_shapes={"x": {0: B}})(lambda x: x + 1)
    with pytest.raises(fx.ShapeContractError, match="assumed by the backend"):
        made(t(8))


def test_other_functions_are_not_concerned():
    def helper(y):
        fx.graph_break()
        return y.view(-1) + 1

    made, _ = compiled(lambda x: helper(x) * 2, {"x": {0: B}})
    assert made(t(4, 3)).shape == (12,)


def scaled(scale, x, y=1):
    return x * scale + y


def test_partials():
    made, counting = compiled(functools.partial(scaled, 2, y=3), {"x": {0: B}})
    for n in (3, 6):
        assert torch.equal(made(torch.ones(n)), torch.ones(n) * 5)
    assert len(counting.graphs) == 1


def test_what_has_no_parameters():
    with pytest.raises(TypeError, match="expected a Python function or module"):
        compiled(torch.relu, {"x": {0: B}})


CONVOLUTIONS = {
    "2d": (lambda: nn.Conv2d(3, 4, 3, padding=1), (3, 5, 6)),
    "1d": (lambda: nn.Conv1d(3, 4, 3, stride=2), (3, 9)),
    "transposed": (lambda: nn.ConvTranspose2d(3, 4, 3), (3, 5, 6)),
    "in groups": (lambda: nn.Conv2d(4, 4, 3, groups=4, bias=False), (4, 5, 6)),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions_of_any_batch(case):
    """Torch chooses a library by whether the batch has 16 items."""
    make, shape = CONVOLUTIONS[case]
    module = make()
    made, counting = compiled(module, {"input": {0: B}})
    for n in (2, 5, 20):
        x = t(n, *shape)
        found, expected = made(x), module(x)
        assert torch.equal(found, expected) and found.stride() == expected.stride()
    assert len(counting.graphs) == 1


@pytest.mark.parametrize("shape", [(4, 3, 2, 9), (4, 2, 8, 9)])
def test_errors_of_convolutions(shape):
    module = nn.Conv2d(3, 4, 3)
    made, _ = compiled(module, None, dynamic=True)
    texts = []
    for fn in (module, made):
        with pytest.raises(RuntimeError) as raised:
            fn(t(*shape))
        texts.append(str(raised.value))
    assert texts[0] == texts[1]


def test_a_program_can_tell_that_it_is_exported():
    def program(x):
        return x + torch.compiler.is_exporting() + 2 * torch.compiler.is_compiling()

    assert fx.export(program, (torch.zeros(3),))(torch.zeros(3)).tolist() == [3.0, 3.0, 3.0]
    assert fx.optimize(lambda graph, _: graph.forward)(program)(torch.zeros(3)).tolist() == [2.0, 2.0, 2.0]
