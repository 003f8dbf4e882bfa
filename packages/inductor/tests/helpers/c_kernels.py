"""Small programs, one for each kind of loop that C code has: tests of compilers and sanitizers run all of them.

Sizes leave a rest beside whole vectors and blocks. ``WRITTEN`` names a piece of text that shows the kind in generated code.
"""

import torch

F = torch.nn.functional


def _floats(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def _indices(size, *shape):
    return torch.randint(-size, size, shape, generator=torch.Generator().manual_seed(size))


ROWS, NARROW, BACK = _floats(33, 150), _floats(150, 20), _floats(150, 33)
IMAGES = _floats(2, 4, 15, 14)
MASK = ROWS > 0.3
HALF, BFLOAT = ROWS.half(), ROWS.bfloat16()

PROGRAMS = {
    "points": (lambda x, m: (x.exp() * m, F.gelu(x), x.double().tanh()), ROWS, MASK),
    "a function of a point": (lambda x: (x.mean() + 1).exp(), ROWS),
    "erf": (lambda x: (x.erf(), x.double().erf().float(), F.gelu(x, approximate="tanh")), ROWS),
    "integers": (
        lambda i: (i // 7, i % (i.abs() + 1), (i * 3).clamp(-9, 9), i.int() * 2),
        _indices(99, 33, 150),
    ),
    "half precision": (lambda x, y: (F.silu(x), (x.float() * y).to(torch.bfloat16), y + 1), HALF, BFLOAT),
    "tiles": (lambda x, y: (x.t() * 2 + y, x.t().half(), (x > 0).t().contiguous()), BACK, ROWS),
    "tiles of doubles": (lambda x: x.t().contiguous().double().exp(), ROWS),
    "interleaved": (
        lambda x: (x[:, 2] * 2 + x[:, 0], torch.stack([x[:, 1], x[:, 3] + 1, x[:, 4]], 1)),
        _floats(133, 7),
    ),
    "rows of few": (lambda x: (x.softmax(-1), x.amin(-1)), _floats(133, 7)),
    "rows": (lambda x: ((x - x.mean(1, keepdim=True)).exp(), x.argmax(1), x.amin(1), (x > 0).any(1)), ROWS),
    "rows in lanes": (lambda x: (x.softmax(-1), x.amax(-1), x.square().sum(-1)), _floats(33, 192)),
    "rows of half precision": (lambda x, y: (x.softmax(1), y.exp().sum(1)), HALF, BFLOAT),
    "short rows": (lambda x: (x.softmax(-1), F.gelu(x).var(-1)), NARROW),
    "short rows of half precision": (lambda x: F.layer_norm(x, (20,)), NARROW.bfloat16()),
    "turned rows": (lambda x, y: ((x.t() + y).softmax(-1), (x.t() * y).amax(-1)), BACK, ROWS),
    "columns": (lambda x, m: ((F.gelu(x) * m).sum(0), x.amax(0), x - x.mean(0)), ROWS, MASK),
    "columns of half precision": (lambda x: (x.float().exp().sum(0), x.softmax(0)), HALF),
    "crossed": (
        lambda x, y: (x * x.amax(0)).maximum(y.transpose(-1, -2)),
        _floats(12, 70, 90),
        _floats(12, 90, 70),
    ),
    "few columns": (lambda x, y: (x * y).log_softmax(0), _floats(12, 130, 3), _floats(12, 130, 1)),
    "whole": (lambda x: (x.mean(), (x - x.sum()).square().sum(), x.amax()), _floats(20_011)),
    "whole with checks": (lambda x, i: (x[:, i] * 2).sum(), ROWS, _indices(150, 1500)),
    "scans of rows": (lambda x: (x.cumsum(1), x.exp().cumsum(1) * 2, x.logcumsumexp(1)), ROWS),
    "scans across memory": (lambda x: (x.cumsum(0), x.clamp(-1, 1).cumprod(0)), ROWS),
    "running extremes": (lambda x: (*x.cummax(1), *x.cummin(0), *x.bfloat16().cummax(1)), ROWS),
    "checked indices": (
        lambda x, i: (x[:, i].exp(), x.gather(1, i.abs().expand(33, 9))),
        ROWS,
        _indices(150, 9),
    ),
    "embeddings": (
        lambda w, i: (w[i].sum(1), F.embedding(i.abs(), w) * 2),
        _floats(50, 33),
        _indices(50, 6, 8),
    ),
    "scatters": (
        lambda x, i: (x.index_add(1, i.abs(), x[:, :9]), x.index_put((i,), x[:9], accumulate=True)),
        *(ROWS, _indices(33, 9)),
    ),
    "conditional loads": (
        lambda x: (F.pad(x, (2, 3)), torch.cat([x[:, 5:] * 2, x[:, :5]], 1), x.roll(3, 1)),
        ROWS,
    ),
    "backward with gaps": (lambda x: (x[:, ::2].flip(-1).exp(), (x[:, ::3].flip(-1) + 1).sum(1)), ROWS),
    "several backward with gaps": (lambda x: x[:6].reshape(2, 3, -1)[..., ::2].flip(-1).exp().sum(0), ROWS),
    "pools": (
        lambda x: (F.avg_pool2d(x, 3, 1, 1), F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x[..., ::2], 3, 1, 1)),
        IMAGES,
    ),
    "images": (
        lambda x, w: (
            F.conv2d(x.transpose(2, 3), w, padding=1, groups=4),
            F.conv2d(x[..., 1:-1] * 2, w, groups=4),
        ),
        *(IMAGES, _floats(4, 1, 3, 3)),
    ),
    "equal launches": (lambda *xs: tuple((x + 1).exp() for x in xs), *(_floats(5, k + 1) for k in range(9))),
}
"""By kind: the function, and its inputs."""
