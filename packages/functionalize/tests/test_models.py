"""Small models, trained for a few steps: eager beside ahead-of-time, bit for bit."""

import copy

import pytest
import torch
from helpers import run_graph, save_everything
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from fxstack_functionalize import aot, aot_function, aot_module


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Linear(12, 4))

    def forward(self, x):
        return F.cross_entropy(self.net(x), x.argmax(-1) % 4)


class ConvNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 2)
        self.alias = self.out.weight

    def forward(self, x):
        y = F.relu_(self.norm(self.conv(x)))
        return self.out(F.max_pool2d(y, 2).mean((2, 3))).pow(2).mean()


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.LSTMCell(5, 7), nn.Linear(7, 1)

    def forward(self, x):
        state = (x.new_zeros(x.size(0), 7), x.new_zeros(x.size(0), 7))
        for step in range(x.size(1)):
            state = self.cell(x[:, step], state)
        return self.out(state[0]).square().sum()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        self.block = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.2, batch_first=True)
        self.head = nn.Linear(16, 11)
        self.head.weight = self.embed.weight

    def forward(self, x):
        logits = self.head(self.block(self.embed(x)))
        return F.cross_entropy(logits.flatten(0, 1), x.flatten())


MODELS = {
    "mlp": (MLP, lambda: torch.randn(8, 6)),
    "conv and batch norm": (ConvNorm, lambda: torch.randn(4, 3, 8, 8)),
    "lstm": (Recurrent, lambda: torch.randn(3, 4, 5)),
    "transformer": (Block, lambda: torch.randint(0, 11, (2, 5))),
}


class Holder(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model


def graph_of(model):
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_module("model", (x,)),))
    return torch.fx.GraphModule(Holder(model), graph)


def train(model, run, batches):
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    torch.manual_seed(3)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = run(batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", MODELS)
def test_training_equals_eager(name):
    torch.manual_seed(0)
    make, batch = MODELS[name]
    eager = make()
    ours = copy.deepcopy(eager)
    batches = [batch() for _ in range(4)]
    function = aot(graph_of(ours), [batches[0]], fw_compiler=run_graph, partitioner=save_everything)
    assert train(ours, lambda x: function(x)[0], batches) == train(eager, eager, batches)
    for (key, a), b in zip(ours.state_dict().items(), eager.state_dict().values(), strict=True):
        assert torch.equal(a, b), key
    assert [b._version for b in ours.buffers()] == [b._version for b in eager.buffers()]


@pytest.mark.parametrize("name", MODELS)
def test_inference_equals_eager(name):
    torch.manual_seed(0)
    make, batch = MODELS[name]
    eager = make().eval()
    x = batch()
    with torch.no_grad():
        function = aot(graph_of(eager), [x], fw_compiler=run_graph, partitioner=save_everything)
        assert torch.equal(function(x)[0], eager(x))


def recurrent_step(x, *weights):
    state = x.new_zeros(2, 4, 2, 5).unbind()
    return torch.lstm(x, state, weights, True, 2, 0.0, True, True, False)


@pytest.mark.parametrize("whole", [True, False])
def test_recurrent_layer_called_by_what_is_not_looked_into(whole):
    """As a module that is called whole, and in a function: oneDNN's layer keeps nothing for a backward then."""
    torch.manual_seed(2)
    layer, x = nn.LSTM(4, 5, num_layers=2, bidirectional=True), torch.randn(3, 2, 4)
    compilers = {"fw_compiler": run_graph, "partitioner": save_everything}
    weights = () if whole else [weight.detach() for weight in layer._flat_weights]
    made = aot_module(layer, **compilers) if whole else aot_function(recurrent_step, **compilers)
    gradients = []
    for call in (layer, lambda value: made(value, *weights)):
        value = x.clone().requires_grad_()
        result = torch.cat([tensor.flatten() for tensor in pytree.tree_leaves(call(value))])
        result.square().sum().backward()
        gradients.append([result.detach(), value.grad])
    torch.testing.assert_close(*gradients)
