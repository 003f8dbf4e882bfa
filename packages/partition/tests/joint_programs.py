"""Small programs whose joint graphs exercise one thing each."""

import torch
import torch.nn.functional as F


def rand(*shape, grad=True):
    return torch.randn(*shape, requires_grad=grad)


def mlp(x, w1, w2):
    return F.gelu(x @ w1) @ w2


def norm_dropout(x, w, b):
    h = F.layer_norm(x, (x.shape[-1],), w, b)
    return torch.native_dropout(h, 0.5, True)[0].sin()


def attention(q, k, v):
    weights = (q @ k.transpose(-1, -2) / 2.0).softmax(-1)
    return weights @ v, weights.sum()


def split_heads(x):
    a, b, c = x.chunk(3, -1)
    return a.sigmoid() * b + c.tanh()


def conv_relu(x, w):
    return F.max_pool2d(F.relu(F.conv2d(x, w)), 2)


def residual_chain(x, w):
    for _ in range(4):
        x = x + F.silu(x) @ w
    return x.sum()


def shared_output(x):
    y = x.exp()
    return y, y * y


def gather_sort(x):
    values, indices = x.sort(-1)
    return values * values, x.gather(-1, indices.flip(-1)).exp()


def broadcast(x, y):
    return (x.unsqueeze(0).expand(4, *x.shape) * y).relu().sum(0)


def no_need(x, y):
    return x + y


def constant_gradient(x):
    return x.sum() * 3.0


def where_mask(x, y):
    return torch.where(x > y, x * y, (x - y).cos())


def embedding_loss(table):
    index = torch.arange(3)
    return F.cross_entropy(F.embedding(index, table), index)


def complex_factor(x):
    return torch.view_as_real(torch.view_as_complex(x) * 2j)


PROGRAMS = {
    "mlp": (mlp, lambda: (rand(6, 5), rand(5, 7), rand(7, 3))),
    "norm_dropout": (norm_dropout, lambda: (rand(6, 8), rand(8), rand(8))),
    "attention": (attention, lambda: (rand(2, 4, 3), rand(2, 4, 3), rand(2, 4, 3))),
    "split_heads": (split_heads, lambda: (rand(5, 12),)),
    "conv_relu": (conv_relu, lambda: (rand(2, 3, 8, 8), rand(4, 3, 3, 3))),
    "residual_chain": (residual_chain, lambda: (rand(4, 6), rand(6, 6))),
    "shared_output": (shared_output, lambda: (rand(7),)),
    "gather_sort": (gather_sort, lambda: (rand(3, 5),)),
    "broadcast": (broadcast, lambda: (rand(3, 2), rand(4, 3, 2))),
    "no_need": (no_need, lambda: (rand(3), rand(3, grad=False))),
    "constant_gradient": (constant_gradient, lambda: (rand(3),)),
    "where_mask": (where_mask, lambda: (rand(4, 4), rand(4, 4))),
    "complex_factor": (complex_factor, lambda: (rand(4, 2),)),
    "embedding_loss": (embedding_loss, lambda: (rand(5, 4),)),
}
