"""What eager torch refuses while it runs, a compiled program refuses with the same type and the same words."""

import warnings

import pytest
import torch
import torch.nn.functional as F

import fxstack
from fxstack.refusals import can_repeat, eager_error

X = torch.linspace(-1, 1, 20).reshape(4, 5)
BAD = torch.tensor([0, 1, 7, 2])
FAR = torch.tensor([0, 100])

CALLS = {
    "cross_entropy": (F.cross_entropy, X, BAD),
    "cross_entropy below": (F.cross_entropy, X, BAD - 3),
    "nll_loss of images": (F.nll_loss, X.reshape(1, 5, 2, 2), BAD.reshape(1, 2, 2)),
    "multi_margin_loss": (F.multi_margin_loss, X, BAD),
    "take": (torch.take, X, FAR),
    "take below": (torch.take, X, -FAR),
    "index": (lambda x, at: x[:, at] * 2, X, FAR),
    "gather": (lambda x, at: x.gather(1, at) * 2, X, FAR[None]),
    "index_select": (lambda x, at: x.index_select(1, at) * 2, X, FAR),
    "embedding": (lambda x, at: F.embedding(at, x) * 2, X, FAR),
    "index_put": (lambda x, at: x.index_put((at,), x[0, 0]), X, FAR),
    "index_put of another dtype": (lambda x, at: x.index_put((at,), x.double()[0]) * 2, X, FAR * 0),
    "scatter": (lambda x, at: x.scatter(1, at, 1.0), X, FAR[None]),
    "index_add": (lambda x, at: x.index_add(0, at, x[:2]), X, FAR),
    "index_add of another dtype": (lambda x, at: x.index_add(0, at, x.double()[:2]), X, FAR * 0),
    "index_copy of another dtype": (lambda x, at: x.index_copy(0, at, x.double()[:2]), X, FAR * 0),
    "index_add of another rank": (lambda x, at: x.index_add(0, at, x[0, :2]), X, FAR * 0),
    "index_add of another length": (lambda x, at: x.index_add(0, at, x[:1]), X, FAR * 0),
    "max_unpool": (lambda x, at: F.max_unpool1d(x[None], at, 2), X, torch.full((1, 4, 5), 100)),
    "one_hot": (lambda x, at: F.one_hot(at, 3) + x[0, 0], X, FAR),
    "one_hot below": (lambda x, at: F.one_hot(at, 3) + x[0, 0], X, -FAR),
    "binary_cross_entropy": (F.binary_cross_entropy, X * 3, X.sigmoid()),
    "division": (lambda x, at: x[0, 0] + at // at, X, FAR),
    "remainder": (lambda x, at: x[0, 0] + 3 % at, X, FAR),
    "inverse": (lambda x, _: torch.linalg.inv(x[:, :4] * 0) + 1, X, FAR),
    "masked_scatter": (lambda x, at: x.masked_scatter(x > 0, at * 1.0) * 2, X, FAR),
    "assertion": (lambda x, at: (torch._assert_async(at[0]), x + 1)[1], X, FAR),
}


def raised(run, *args):
    with pytest.raises(Exception) as caught:
        run(*args)
    return type(caught.value), str(caught.value)


@pytest.mark.parametrize("name", CALLS)
def test_type_and_words_are_eagers(name):
    function, *args = CALLS[name]
    compiled = fxstack.compile(function, options={"optimization": 0, "use_cache": False})
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="fxstack")  # a graph that runs in eager
        found = raised(compiled, *args)
    assert found == raised(function, *args)
    assert not fxstack.compile_log(compiled).break_count


@pytest.mark.parametrize("dynamic", [None, True])
def test_one_hot_refuses_what_it_refuses_without_looking(dynamic):
    for function in (lambda at: F.one_hot(at.int(), 5), lambda at: F.one_hot(at[:0], 0)):
        compiled = fxstack.compile(function, dynamic=dynamic, options={"optimization": 0})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it runs in eager
            assert raised(compiled, BAD) == raised(function, BAD)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_one_hot_is_laid_out_in_order(backend):
    at = torch.randint(0, 5, (3, 4, 2)).permute(2, 0, 1)

    def program(at):
        found = F.one_hot(at, 5)
        return found, found.stride(), found.view(-1).sum()

    ours, eager = fxstack.compile(program, backend=backend, fullgraph=True)(at), program(at)
    assert ours[0].stride() == ours[1] == eager[1]
    torch.testing.assert_close(ours, eager)


def test_one_hot_by_its_operator():
    compiled = fxstack.compile(lambda at: torch.ops.aten.one_hot(at, 9), options={"optimization": 0})
    assert torch.equal(compiled(BAD), F.one_hot(BAD, 9))


def test_gradients_and_symbolic_sizes():
    def loss(x, target):
        return F.cross_entropy(x * 2, target)

    x = X.clone().requires_grad_()
    compiled = fxstack.compile(loss, dynamic=True, options={"optimization": 0})
    torch.testing.assert_close(compiled(x, BAD % 5), loss(x, BAD % 5))
    assert raised(compiled, x, BAD) == raised(loss, x, BAD)


def test_writes_before_the_refusal_are_eagers():
    def step(x, at):
        x.add_(1)
        return x[at]

    ours, theirs = X.clone(), X.clone()
    compiled = fxstack.compile(step, options={"optimization": 0})
    assert raised(compiled, ours, FAR) == raised(step, theirs, FAR)
    assert torch.equal(ours, theirs)


def test_running_statistics_are_updated_once():
    ours, theirs = torch.nn.BatchNorm1d(5), torch.nn.BatchNorm1d(5)
    compiled = fxstack.compile(lambda x, at: ours(x)[at], options={"optimization": 0})
    assert raised(compiled, X, FAR) == raised(lambda x, at: theirs(x)[at], X, FAR)
    for mine, its in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(mine, its)


def test_the_program_goes_on():
    compiled = fxstack.compile(F.cross_entropy, options={"optimization": 0})
    raised(compiled, X, BAD)
    torch.testing.assert_close(compiled(X, BAD % 5), F.cross_entropy(X, BAD % 5))


def test_the_exception_stands_alone():
    with pytest.raises(IndexError) as caught:
        fxstack.compile(F.cross_entropy, options={"optimization": 0})(X, BAD)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


def module(function, *inputs):
    return torch.fx.experimental.proxy_tensor.make_fx(function)(*inputs)


def test_a_wrong_compiled_graph_gives_eager_s_results_and_says_so():
    assert can_repeat(module(torch.sin, X))
    with pytest.warns(UserWarning, match="a compiled graph raised ValueError: no; eager torch"):
        assert eager_error(ValueError("no"), lambda x: x + 1, (1,), repeats=True) == 2


@pytest.mark.parametrize("function", [lambda x: x.add_(1), torch.rand_like, torch.bernoulli])
def test_what_lasts_is_not_run_again(function):
    assert not can_repeat(module(function, X.abs()))
    with warnings.catch_warnings(), pytest.raises(ValueError, match="no"):
        warnings.simplefilter("error")
        eager_error(ValueError("no"), pytest.fail, ("ran again",), repeats=False)
