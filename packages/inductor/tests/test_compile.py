"""``compile_graph`` and ``lower``: contract, dynamic shapes, mutation, constants."""

import pytest
import torch
from inductor_checks import FAST, check, copies, trace
from torch.fx.experimental.proxy_tensor import make_fx

import fxstack_inductor as fi

F = torch.nn.functional


class Block(torch.nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(
            torch.nn.LayerNorm(width),
            torch.nn.Linear(width, 4 * width),
            torch.nn.GELU(),
            torch.nn.Linear(4 * width, width),
        )
        self.heads = heads

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).split(width, -1)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        weights = (q @ k.transpose(-1, -2) / 3).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(x)


def functional(module):
    names = [name for name, _ in module.named_parameters()]
    values = [value.detach() for value in module.parameters()]
    return (lambda x, *p: torch.func.functional_call(module, dict(zip(names, p)), (x,))), values


def test_transformer_block():
    torch.manual_seed(0)
    run, values = functional(Block())
    check(run, torch.randn(2, 6, 32), *values)


def test_transformer_block_with_symbolic_shapes():
    torch.manual_seed(0)
    run, values = functional(Block())
    others = [(torch.randn(b, n, 32), *values) for b, n in ((3, 9), (2, 4))]
    with torch.no_grad():
        check(run, torch.randn(2, 6, 32), *values, symbolic=True, others=others)


def test_transformer_block_training():
    torch.manual_seed(0)
    run, values = functional(Block())

    def step(x, *p):
        p = [q.detach().requires_grad_() for q in p]
        loss = run(x, *p).square().mean()
        return (loss.detach(), *torch.autograd.grad(loss, p))

    x = torch.randn(2, 6, 32)
    graph = make_fx(step, decomposition_table=fi.decompositions(), tracing_mode="fake")(x, *values)
    compiled = fi.compile_graph(graph, (x, *values), FAST)
    for got, want in zip(compiled(x, *values), step(x, *values)):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_dynamic_shapes():
    def f(x, y):
        return (
            x.softmax(-1).sum(0),
            (x + y[: x.shape[0]]).mean(),
            torch.cat([x, x], 1),
            x.reshape(-1) * x.shape[0],
        )

    shapes = [(7, 5), (2, 30), (3, 1000)]
    check(
        f,
        torch.randn(4, 6),
        torch.randn(4, 6),
        symbolic=True,
        others=[(torch.randn(s), torch.randn(s)) for s in shapes],
    )


def test_input_mutation_is_written_in_place():
    def f(x, y):
        x.add_(y)
        return x.sum() * 2

    x, y = torch.randn(5), torch.randn(5)
    graph = make_fx(torch.func.functionalize(f), tracing_mode="fake")(x.clone(), y)
    compiled = fi.compile_graph(graph, (x, y), FAST)
    mine, theirs = x.clone(), x.clone()
    result, wanted = compiled(mine, y), f(theirs, y)
    torch.testing.assert_close(result[0], wanted)
    torch.testing.assert_close(mine, theirs)


def test_inputs_with_other_strides_give_the_same_values():
    def f(x, y):
        return x.exp() + y, x.sum(0), y.t()

    x, y = torch.randn(2, 5, 7)
    compiled = check(f, x, y)
    others = torch.randn(7, 5).t(), torch.randn(1, 1).expand(5, 7)
    for got, want in zip(compiled(*others), f(*others)):
        torch.testing.assert_close(got, want)


def test_an_input_of_another_shape_or_a_mutated_one_of_other_strides_is_refused():
    def f(x):
        x.add_(1)
        return x * 2

    x = torch.randn(4, 6)
    graph = make_fx(torch.func.functionalize(f), tracing_mode="fake")(x.clone())
    compiled = fi.compile_graph(graph, (x,), FAST)
    with pytest.raises(ValueError, match=r"must be float32\[4, 6\] on cpu, but it is float32\[3, 5\]"):
        compiled(torch.randn(3, 5))
    with pytest.raises(ValueError, match="writes to has strides"):
        compiled(torch.randn(6, 4).t())


def test_swapped_inputs_are_read_before_they_are_written():
    def f(x, y):
        t = x.clone()
        x.copy_(y * 1)
        y.copy_(t)
        return x + y

    x, y = torch.randn(2, 9)
    graph = make_fx(torch.func.functionalize(f), tracing_mode="fake")(x.clone(), y.clone())
    compiled = fi.compile_graph(graph, (x, y), FAST)
    mine, theirs = copies((x, y)), copies((x, y))
    torch.testing.assert_close(compiled(*mine)[0], f(*theirs))
    assert torch.equal(mine[0], theirs[0])
    assert torch.equal(mine[1], theirs[1])


def test_mutation_in_the_middle_is_refused_with_the_node():
    graph = make_fx(lambda x: x.clone().add_(1) * 2, tracing_mode="fake")(torch.randn(3))
    with pytest.raises(
        fi.UnsupportedGraphError, match=r"node add_: aten\.add_\.Tensor mutates .* functionalize"
    ):
        fi.compile_graph(graph, (), FAST)


def test_constants_numbers_and_none_are_returned():
    table = torch.arange(5.0)
    graph = trace(lambda x: x + 1, table)
    output = next(node for node in graph.graph.nodes if node.op == "output")
    placeholder = next(node for node in graph.graph.nodes if node.op == "placeholder")
    output.args = (
        (
            output.args[0][0] if isinstance(output.args[0], (tuple, list)) else output.args[0],
            None,
            3,
            placeholder,
        ),
    )
    graph.recompile()
    result = fi.compile_graph(graph, (table,), FAST)(table)
    assert result[1:3] == (None, 3)
    assert result[3] is table


def test_names_of_nodes_cannot_clash_with_the_program_s():
    graph = torch.fx.Graph()
    fake = trace(lambda a: a.sin() @ a, torch.randn(3, 3))
    names = ["take", "threads"]
    for node in fake.graph.nodes:
        if node.op in {"placeholder", "call_function"} and names:
            node._rename(names.pop())
    fake.recompile()
    x = torch.randn(3, 3)
    torch.testing.assert_close(fi.compile_graph(fake, (x,), FAST)(x)[0], x.sin() @ x)
    assert graph is not None


def test_gradients_are_not_recorded():
    x = torch.randn(3, 3, requires_grad=True)
    compiled = fi.compile_graph(trace(lambda x: (x @ x).sin(), x.detach()), (x,), FAST)
    assert not compiled(x)[0].requires_grad


def test_lower_shows_the_code():
    lowered = fi.lower(trace(lambda x: x.sin() + 1, torch.randn(4)))
    assert "sinf" in lowered.c
    assert lowered.host.startswith("def call(")


def test_unknown_target():
    with pytest.raises(ValueError, match="target 'tpu'"):
        fi.lower(trace(lambda x: x + 1, torch.randn(4)), target="tpu")


def test_options_are_frozen_and_hashable():
    assert hash(fi.InductorOptions()) == hash(fi.InductorOptions())
