"""A program that was compiled before: linked, not traced; equal to eager; compiled anew where anything differs."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn.attention.flex_attention import flex_attention

import fxstack
import fxstack_partition


@pytest.fixture
def traces(monkeypatch, tmp_path):
    """The joint and inference graphs that were traced, with a cache of its own."""

    module = sys.modules["fxstack_functionalize.aot"]
    made, trace = [], module.trace

    def counted(*args):
        made.append(trace(*args))
        return made[-1]

    monkeypatch.setattr(module, "trace", counted)
    monkeypatch.setenv("FXSTACK_INDUCTOR_CACHE_DIR", str(tmp_path))
    return made


def results(model, x, train=True):
    """What a call gives, and the gradients."""
    if not train:
        with torch.no_grad():
            return [model(x)]
    x = x.clone().requires_grad_()
    out = model(x)
    out.square().sum().backward()
    return [out.detach(), x.grad, *(p.grad for p in getattr(model, "parameters", list)())]


def program():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 3))


X = torch.randn(5, 4)


@pytest.mark.parametrize("train", [True, False])
def test_a_second_start_traces_nothing(traces, train):
    expected = results(program(), X, train)
    for count in (1, 1):
        fxstack.reset()
        compiled = fxstack.compile(program())
        torch.testing.assert_close(results(compiled, X, train), expected)
        assert len(traces) == count


@pytest.mark.parametrize("dynamic", [True, None])
def test_symbolic_sizes(traces, dynamic):
    for rows in ((6, 9, 12), (6, 8, 7)):
        fxstack.reset()
        plain, compiled = program(), fxstack.compile(program(), dynamic=dynamic)
        for n in rows:
            x = torch.linspace(-1, 1, 4 * n).reshape(n, 4)
            torch.testing.assert_close(results(compiled, x), results(plain, x), rtol=1e-4, atol=1e-4)
        assert len(traces) == (1 if dynamic else 2)


def test_a_forward_without_a_backward(traces):
    for _ in range(2):
        fxstack.reset()
        assert fxstack.compile(program())(X).requires_grad
    assert len(traces) == 1


def test_whole_training_steps(traces):
    def three_losses(wrap):
        model = program()
        optimizer = torch.optim.Adam(model.parameters())

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        compiled = wrap(step)
        return [compiled(X * k) for k in range(1, 4)]

    for _ in range(2):
        fxstack.reset()
        torch.testing.assert_close(three_losses(fxstack.compile), three_losses(lambda fn: fn))
    assert len(traces) == 1  # the first step, which makes the state, runs in plain Python


def test_graphs_inside_of_the_graph(traces):
    def attend(q, scale):
        return flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score * scale + i - j)

    q = torch.randn(1, 2, 16, 8)
    for scale, count in ((0.5, 1), (0.5, 1), (0.25, 2)):
        fxstack.reset()
        torch._dynamo.reset()  # eager's flex_attention compiles itself, and fails in torch 2.15 for another scale
        torch.testing.assert_close(fxstack.compile(attend)(q, scale), attend(q, scale))
        assert len(traces) == count


def choose(x):
    return torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos(), (x,))


def repeat(x):
    return torch.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))[1]


@pytest.mark.parametrize(("fn", "train"), [(choose, True), (choose, False), (repeat, False)])
def test_control_flow(traces, fn, train):
    for _ in range(2):
        fxstack.reset()
        compiled = fxstack.compile(fn)
        for x in (X.abs(), -X.abs()):
            torch.testing.assert_close(results(compiled, x, train), results(fn, x, train))
    assert len(traces) == 1


def test_the_report_of_a_second_start_has_its_graphs(traces):
    stages = []
    for _ in range(2):
        fxstack.reset()
        compiled = fxstack.compile(program())
        results(compiled, X)
        graphs = fxstack.compile_log(compiled).graphs
        stages.append([graph.signature.stage for _, graph in graphs])
    assert stages[0] == stages[1] == ["joint", "forward", "backward"]


def test_other_options_are_another_program(traces):
    for count, options in enumerate([{}, {"fuse": False}, {"partitioner": "save_all"}], 1):
        fxstack.reset()
        results(fxstack.compile(program(), options=options), X)
        assert len(traces) == count


def pick(table, index):
    return table[index] * 2


def test_an_index_out_of_range_has_eagers_error(traces):
    table, right, wrong = torch.randn(4, 3), torch.tensor([0, 3]), torch.tensor([0, 9])
    for _ in range(2):
        fxstack.reset()
        compiled = fxstack.compile(pick)
        assert torch.equal(compiled(table, right), pick(table, right))
        with pytest.raises(IndexError) as ours:
            compiled(table, wrong)
        with pytest.raises(IndexError) as eager:
            pick(table, wrong)
        assert str(ours.value) == str(eager.value)
    assert len(traces) == 1  # the error comes from the graph as it was captured


def rank(x):
    return x + torch.tensor([1.0, 2.0, 3.0, 4.0])


def long_rank(x):
    return torch.tensor(list(range(20000))).view(-1, 4)[:5] + x


@pytest.mark.parametrize("fn", [rank, long_rank])
def test_constants_of_the_program_are_kept_with_it(traces, fn):
    for _ in range(2):
        fxstack.reset()
        assert torch.equal(fxstack.compile(fn)(X), fn(X))
    assert len(traces) == 1


def test_dropout_draws_eagers_numbers(traces):
    def dropped(x):
        return nn.functional.dropout(x * 2, 0.5)

    big = torch.randn(64, 64)
    for _ in range(2):
        fxstack.reset()
        torch.manual_seed(3)
        ours = fxstack.compile(dropped)(big)
        torch.manual_seed(3)
        assert torch.equal(ours, dropped(big))
    assert len(traces) == 1


def test_a_damaged_file_is_compiled_anew(traces, tmp_path):
    for _ in range(2):
        fxstack.reset()
        assert torch.equal(fxstack.compile(rank)(X), rank(X))
        for path in tmp_path.rglob("kernels.so"):
            data = path.read_bytes()
            if data.startswith(b"{"):  # libraries are in use here
                path.write_bytes(data[:-9])
    assert len(traces) == 2


def test_without_a_cache_nothing_is_kept(traces, tmp_path):
    for count in (1, 2):
        fxstack.reset()
        fxstack.compile(rank, options={"use_cache": False})(X)
        assert len(traces) == count
    assert not [*tmp_path.iterdir()]


def saving(kind):
    """A partitioner of the program's own."""

    def own(joint, options):
        return fxstack_partition.save_all(joint, options) if kind else None

    return own


def test_a_partitioner_of_the_programs_own_is_known_by_its_code(traces):
    for kind, count in (("a", 1), ("a", 1), ("b", 2), ([object()], 3), ([object()], 4)):
        fxstack.reset()
        results(fxstack.compile(program(), options={"partitioner": saving(kind)}), X)
        assert len(traces) == count


@torch.library.custom_op("fxstack_warm::twice", mutates_args=())
def twice(x: torch.Tensor, k: float) -> torch.Tensor:
    return x.sin() * k


@torch.library.custom_op("fxstack_warm::add_one", mutates_args=("x",))
def add_one(x: torch.Tensor) -> None:
    x.add_(1)


def remember(ctx, inputs, output):
    (ctx.x, ctx.k) = inputs


twice.register_fake(lambda x, k: torch.empty_like(x))
twice.register_autograd(lambda ctx, grad: (grad * ctx.x.cos() * ctx.k, None), setup_context=remember)


def wrong_by(factor):
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.save_for_backward(x)
            ctx.k = k
            return twice(x, k)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * x * ctx.k * factor, None

    return Wrong


def with_custom_operators(x):
    y = twice(x, 2.0) * 3
    add_one(y)
    return y.exp()


def test_custom_operators_are_known_by_their_code(traces):
    for _ in range(2):
        fxstack.reset()
        torch.testing.assert_close(
            results(fxstack.compile(with_custom_operators), X), results(with_custom_operators, X)
        )
    assert len(traces) == 1


def test_custom_functions_are_known_by_their_code(traces):
    for factor, count in ((1, 1), (2, 2), (1, 2), (2, 2)):
        fxstack.reset()
        wrong = wrong_by(factor)
        fn = lambda x, wrong=wrong: wrong.apply(x, 3.0) + 1
        torch.testing.assert_close(results(fxstack.compile(fn), X), results(fn, X))
        assert len(traces) == count


AGAIN = """
import sys, torch
from torch import nn
import fxstack
import fxstack_functionalize.aot
def never(*args):
    raise AssertionError("traced")
sys.modules["fxstack_functionalize.aot"].trace = never
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 3))
x = torch.ones(5, 4, requires_grad=True)
fxstack.compile(model)(x).square().sum().backward()
assert not [name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor"))]
print("warm")
"""


def test_another_process_starts_without_a_trace(traces):
    results(fxstack.compile(program()), X)
    done = subprocess.run([sys.executable, "-c", AGAIN], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "warm"


def test_a_forward_from_the_disk_is_kept_with_its_first_backward(traces, caplog):
    """The first process makes no backward, the second does, and the third traces nothing."""
    x = X.clone().requires_grad_()
    fxstack.compile(program())(x)
    fxstack.reset()
    results(fxstack.compile(program()), X)
    fxstack.reset()
    before = len(traces)
    torch.testing.assert_close(results(fxstack.compile(program()), X), results(program(), X))
    assert len(traces) == before
    assert not caplog.records
