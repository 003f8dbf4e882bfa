"""torch's library as models use it: layers, losses, indexing, factories, distributions; values, gradients, state."""

import operator

import torch
from beside_eager import Programs
from torch import nn
from torch.nn import functional as F

program = Programs()


def leaf(*size):
    return torch.randn(*size, requires_grad=True)


def trained(c, model, *inputs):
    """Outputs of a compiled model and all gradients."""
    out = c(model)(*inputs)
    tensors = [t for t in torch.utils._pytree.tree_leaves(out) if t.requires_grad]
    sum(t.sin().sum() for t in tensors).backward()
    return out, model, inputs


@program(breaks=0)
def lstm(c):
    model = nn.LSTM(4, 5, 2, bidirectional=True, batch_first=True)
    first = trained(c, model, leaf(2, 3, 4))
    second = trained(c, model, leaf(2, 3, 4), (torch.randn(4, 2, 5), torch.randn(4, 2, 5)))
    model.eval()
    return first, second, c(model)(torch.randn(2, 3, 4))


@program(breaks=0)
def gru_with_dropout(c):
    return trained(c, nn.GRU(4, 5, dropout=0.3, num_layers=2), leaf(3, 2, 4))


@program(breaks=0)
def lstm_over_several_lengths(c):
    model = nn.LSTM(4, 5, batch_first=True)
    return [trained(c, model, leaf(2, length, 4)) for length in (3, 4, 5, 6, 4)]


@program(breaks=0)
def lstm_cell_in_a_loop(c):
    cell = nn.LSTMCell(4, 5)

    @c
    def f(x):
        state, out = (torch.zeros(2, 5), torch.zeros(2, 5)), []
        for step in x.unbind(1):
            state = cell(step, state)
            out.append(state[0])
        return torch.stack(out, 1)

    return f(leaf(2, 3, 4)), cell


@program(breaks=0)
def multihead_attention(c):
    model, x = nn.MultiheadAttention(8, 2, batch_first=True), leaf(2, 3, 8)
    f = c(model)
    causal = torch.ones(3, 3, dtype=torch.bool).triu(1)
    outs = [f(x, x, x), f(x, x, x, need_weights=False, attn_mask=causal)]
    outs[0][0].sum().backward()
    model.eval()
    with torch.no_grad():
        padding = torch.tensor([[False, True, False]] * 2)
        outs += [f(x, x, x, key_padding_mask=padding), f(x, x, x, average_attn_weights=False)]
    return outs, model, x


@program()
def transformer_encoder(c):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 2), leaf(2, 3, 8)
    f = c(model)
    outs = [f(x)]
    outs[0].sum().backward()
    model.eval()
    with torch.no_grad():
        outs.append(f(x))
        outs.append(f(x, src_key_padding_mask=torch.tensor([[False, False, True]] * 2)))
    return outs, model, x


@program()
def training_and_evaluation_alternate(c):
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Dropout(0.5))
    f, outs = c(model), []
    for mode in (True, False, True, False):
        outs.append(f.train(mode)(torch.randn(2, 2, 5, 5)))
    model[1].momentum = None
    model.train()
    outs.append(f(torch.randn(2, 2, 5, 5)))
    return outs, model


@program(breaks=0)
def normalisations(c):
    instance = nn.InstanceNorm1d(4, affine=True, track_running_stats=True)
    layers = [nn.LayerNorm(4), nn.GroupNorm(2, 4), instance, nn.RMSNorm(4)]
    layers = nn.ModuleList([*layers, nn.LocalResponseNorm(2)])

    class Together(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = layers

        def forward(self, x):
            return [layer(x) for layer in self.layers]

    return trained(c, Together(), leaf(2, 4, 4))


@program(breaks=0)
def attention_with_masks(c):
    f = c(lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m))
    causal = c(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True, scale=0.3))
    q = leaf(2, 2, 5, 8)
    outs = [f(q, torch.ones(5, 5, dtype=torch.bool).tril()), f(q, torch.randn(5, 5)), causal(q)]
    sum(out.sum() for out in outs).backward()
    return outs, q


@program(breaks=0)
def classification_losses(c):
    @c
    def f(x, t):
        return (
            F.cross_entropy(x, t, ignore_index=1),
            F.cross_entropy(x, t, weight=torch.tensor([1.0, 2, 3]), label_smoothing=0.1),
            F.cross_entropy(x, x.softmax(-1)),
            F.nll_loss(x.log_softmax(-1), t, reduction="sum"),
            F.triplet_margin_loss(x, x + 1, x - 1),
            F.huber_loss(x, x * 2),
        )

    x = leaf(4, 3)
    out = f(x, torch.tensor([0, 1, 2, 1]))
    sum(out).backward()
    return out, x, f(x, torch.tensor([1, 1, 1, 1]))[0]


@program(breaks=0)
def indexing(c):
    @c
    def f(x, i):
        y = x.clone()
        y[:, 1] = 5
        y[..., -1:] += 1
        y[1, ::2] *= 2
        y[torch.tensor([0, 2])] = y[torch.tensor([2, 0])]
        return x[i], x[:, None, ...], y, x[i, i], x[[0, 2]], x[range(2)], x[(0, 1)], x[-1, 1:3]

    x = leaf(3, 4)
    out = f(x, torch.tensor([2, 0, 1]))
    sum(t.sum() for t in out).backward()
    return out, x


@program()
def distributions(c):
    @c
    def f(m, s):
        normal = torch.distributions.Normal(m, s.exp())
        categorical = torch.distributions.Categorical(logits=m)
        standard = torch.distributions.Normal(0.0, 1.0)
        return (
            normal.rsample(),
            normal.log_prob(m),
            torch.distributions.kl_divergence(normal, standard),
            categorical.sample(),
            categorical.log_prob(torch.tensor([0, 1])),
        )

    return f(leaf(2, 3), leaf(2, 3))


@program()
def packed_sequences(c):
    model = nn.LSTM(4, 5, batch_first=True)

    @c
    def f(x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(model(packed)[0], batch_first=True)

    return f(torch.randn(2, 3, 4), torch.tensor([3, 2])), model


@program()
def calls_of_functions_whose_operator_python_shadows(c):
    @c
    def f(x):
        return torch._VF.broadcast_tensors([x, x[0]]), torch._VF.norm(x)

    return f(torch.randn(2, 3))


@program(graphs=1, breaks=0)
def operators_called_by_compiled_code(c):
    @c
    def f(x):
        powers = list(map(operator.pow, [x, 2.0, x], [3, x, x]))
        return powers, sum([x, 1, x]), x.__pow__(2), list(map(operator.ipow, [x + 0], [2])), 2 / x

    return f(torch.ones(3) * 2)


@program(graphs=1, breaks=0)
def a_number_between_two_loops_over_the_same_values(c):
    @c
    def f(x):
        y = -x
        z = y.mul(3).add(x, alpha=x.dot(y).neg())
        return y, z.mul(2).add(x, alpha=z.dot(x))

    return f(torch.randn(5))


test_equals_eager = program.tests()
