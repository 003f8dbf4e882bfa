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
            torch.testing.assert_close(
                results(compiled, x), results(plain, x), rtol=1e-4, atol=1e-4
            )
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
    assert len(traces) == 2  # the optimizer has no state in the first step


def test_graphs_inside_of_the_graph(traces):
    def attend(q, scale):
        return flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score * scale + i - j)

    q = torch.randn(1, 2, 16, 8)
    for scale, count in ((0.5, 1), (0.5, 1), (0.25, 2)):
        fxstack.reset()
        torch.testing.assert_close(fxstack.compile(attend)(q, scale), attend(q, scale))
        assert len(traces) == count


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


def test_constants_of_the_program_are_kept_with_it(traces):
    for _ in range(2):
        fxstack.reset()
        assert torch.equal(fxstack.compile(rank)(X), rank(X))
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


def test_a_partitioner_of_the_programs_own_is_not_kept(traces):
    def own(joint, options):
        return fxstack_partition.save_all(joint, options)

    for count in (1, 2):
        fxstack.reset()
        results(fxstack.compile(program(), options={"partitioner": own}), X)
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
