"""What eager's kernels return where torch's fake kernels say something else: dtypes, and results that are undefined."""

import pytest
import torch
from beside_eager import Programs

pytestmark = pytest.mark.filterwarnings("error:fxstack")
program = Programs()


@program(graphs=1, breaks=0)
def random_numbers_of_two_dtypes(c):
    @c
    def f(single, double, half):
        return (
            torch.normal(single, double) + 1,
            torch.normal(half, single),
            torch.normal(double, half) * 2,
            torch.binomial(single.round(), single / 9),
        )

    torch.manual_seed(1)
    single = torch.linspace(0.5, 4, 40)
    return f(single, single.double(), single.half()), torch.rand(2)


def layers_of(module, **options):
    torch.manual_seed(0)
    return module(8, 6, **options), torch.randn(5, 3, 8)


def without_gradients(c, module):
    plain, x = layers_of(module)
    deep, _ = layers_of(module, num_layers=2, bidirectional=True)
    step = c(lambda x: [*plain(x), *deep(x)])
    with torch.no_grad():
        first = step(x)
    with torch.inference_mode():
        second = step(x)
    third = step(x)  # of another graph, with gradients
    third[0].sum().backward()
    return first, second, third, plain.weight_hh_l0.grad


@program(breaks=0)
def lstm_without_gradients(c):
    return without_gradients(c, torch.nn.LSTM)


@program(breaks=0)
def gru_without_gradients(c):
    return without_gradients(c, torch.nn.GRU)


@program(breaks=0)
def rnn_without_gradients(c):
    return without_gradients(c, torch.nn.RNN)


@program(graphs=1, breaks=0)
def lstm_under_no_grad_inside(c):
    layers, x = layers_of(torch.nn.LSTM)
    last = torch.nn.Linear(6, 2)

    @c
    def f(x):
        with torch.no_grad():
            hidden, _ = layers(x)
        return last(hidden)

    f(x).sum().backward()
    return f(x), last.weight.grad, layers.weight_ih_l0.grad


def attention(c, **options):
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    step = c(lambda x, padding: layer(x, x, x, key_padding_mask=padding, **options))
    with torch.no_grad():
        return step(torch.randn(2, 5, 8), padding)


@program(graphs=1, breaks=0)
def attention_without_weights(c):
    return attention(c, need_weights=False)


@program(graphs=2, breaks=0)
def attention_with_weights(c):
    return attention(c), attention(c, average_attn_weights=False)


@program(graphs=1, breaks=0)
def encoder_layer_of_padded_words(c):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with torch.no_grad():
        return c(layer.eval())(torch.randn(2, 5, 8), src_key_padding_mask=padding)


@program(graphs=1, breaks=0, dynamic=True)
def attention_of_any_length(c):
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()

    @c
    def f(x):
        mask = torch.zeros(x.shape[1], x.shape[1], dtype=torch.bool)
        return layer(x, x, x, attn_mask=mask, need_weights=False)

    with torch.no_grad():
        return f(torch.randn(2, 5, 8)), f(torch.randn(3, 7, 8))


test_equals_eager = program.tests()
