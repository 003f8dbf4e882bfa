"""Strides of results: those of fake tensors against those of eager's kernels, for arguments in any order of dimensions."""

import random

import pytest
import torch
import torch.nn.functional as F

from fxstack_capture.shapes.env import CaptureShapeEnv
from fxstack_capture.torch_side.fake_mode import CaptureFakeMode

BINARY = {
    "copysign": torch.copysign,
    "floor_divide": torch.floor_divide,
    "div_floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "heaviside": torch.heaviside,
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "xlogy": torch.xlogy,
    "xlog1py": torch.special.xlog1py,
}
UNARY = {
    "index_fill": lambda x: x.index_fill(0, torch.tensor([0]), 2.0),
    "roll": lambda x: x.roll(1, 0),
    "rrelu": lambda x: F.rrelu(x, training=x.numel() % 5 != 0),
    "softmax": lambda x: x.softmax(0).log_softmax(-1),
    "log_sigmoid": F.logsigmoid,
    "angle": torch.angle,
    "mvlgamma": lambda x: torch.mvlgamma(x + 1, 2),
    "base": lambda x: 2**x,
    "reflection": lambda x: F.pad(x, (1, 1) * max(1, min(3, x.dim() - 2)), "reflect"),
    "replication": lambda x: F.pad(x, (1, 1) * max(1, min(3, x.dim() - 2)), "replicate"),
    "batch_norm": lambda x: F.batch_norm(
        x, torch.zeros(x.shape[1]), torch.ones(x.shape[1]), training=x.numel() % 5 == 0
    ),
}


def drawn(shape, draw):
    """A tensor whose dimensions lie in memory in any order, with gaps or none."""
    order = draw.sample(range(len(shape)), len(shape))
    sizes = [shape[dim] for dim in order]
    gap = draw.choice([1, 2])
    memory = torch.rand([*sizes[:-1], sizes[-1] * gap])[..., ::gap]
    return memory.permute([order.index(dim) for dim in range(len(shape))])


def in_channels_last(x):
    return x.to(memory_format=torch.channels_last) if x.dim() == 4 else x


def strides(x):
    return [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1]


def agrees(fn, *args):
    mode = CaptureFakeMode()
    with mode:
        fake = fn(*map(mode.from_tensor, args))
    assert strides(fake) == strides(fn(*args)), [(x.shape, x.stride()) for x in args]


@pytest.mark.parametrize("name", BINARY)
def test_of_two_arguments(name):
    draw = random.Random(name)
    for _ in range(60):
        shape = [draw.randint(2, 4) for _ in range(draw.randint(2, 4))]
        shapes = [[draw.choice([size, size, 1]) for size in shape] for _ in range(2)]
        agrees(BINARY[name], *(drawn(shape, draw) for shape in shapes))


@pytest.mark.parametrize("name", UNARY)
def test_of_one_argument(name):
    draw = random.Random(name)
    for _ in range(60):
        x = drawn([draw.randint(2, 4) for _ in range(draw.randint(2, 5))], draw)
        agrees(UNARY[name], x)
        agrees(UNARY[name], in_channels_last(x))


INDEXED = {
    "first": lambda x, i, j: x[i],
    "middle": lambda x, i, j: x[:, i],
    "last": lambda x, i, j: x[..., i],
    "two": lambda x, i, j: x[:, i, j],
    "apart": lambda x, i, j: x[i, :, j],
    "apart_behind": lambda x, i, j: x[:, i, :, j],
    "of_one_row": lambda x, i, j: x[:, i[:1], j],
    "computed": lambda x, i, j: x[:, (i + j) // 2],
}


@pytest.mark.parametrize("name", INDEXED)
def test_of_indices(name):
    draw = random.Random(name)
    for _ in range(40):
        x = drawn([draw.randint(2, 4) for _ in range(4)], draw)
        shape = [draw.randint(1, 3) for _ in range(draw.randint(1, 3))]
        agrees(INDEXED[name], x, *((drawn(shape, draw) * 2).long() for _ in range(2)))


@pytest.mark.parametrize("spread", [1.0, None])
def test_of_random_numbers_around_permuted_ones(spread):
    draw = random.Random(1)
    for _ in range(20):
        x = drawn([2, 3, 4], draw)
        agrees(lambda x: torch.normal(x, spread or x), x)
        agrees(lambda x: torch.normal(0.0, x), x)


ONE_PASS = {
    "copy": lambda x, y: x.clone(),
    "double": lambda x, y: x.double(),
    "like": lambda x, y: torch.zeros_like(x),
    "flipped": lambda x, y: x.flip(0),
    "lower": lambda x, y: torch.atleast_2d(x).tril(),
    "negative": lambda x, y: -x,
    "relu": lambda x, y: x.relu(),
    "square": lambda x, y: x**2,
    "times_a_number": lambda x, y: x * 1,
    "number_minus": lambda x, y: 1 - x,
    "compared_to_a_number": lambda x, y: x > 0.5,
    "sum": lambda x, y: x + y,
    "chosen": lambda x, y: torch.where(x > y, x, y),
    "larger": lambda x, y: torch.maximum(x, y),
}


def with_ones(draw):
    return [draw.choice([1, 1, 2, 3]) for _ in range(draw.randint(1, 5))]


@pytest.mark.parametrize("symbols", [False, True])
@pytest.mark.parametrize("name", ONE_PASS)
def test_of_dimensions_of_one_element(name, symbols):
    draw = random.Random(name)
    fn = ONE_PASS[name]
    for _ in range(60):
        shape = with_ones(draw)
        shapes = [shape, [draw.choice([size, size, 1]) for size in shape]]
        x, y = (drawn(sizes, draw) for sizes in shapes)
        mode = CaptureFakeMode()
        if symbols:
            mode.use_symbols(CaptureShapeEnv(tuple))
        fakes = [mode.from_tensor(t, static_shapes=not symbols) for t in (x, y)]
        with mode:
            fake = fn(*fakes)
        assert sizes_of(fake.stride()) == fn(x, y).stride(), (x.stride(), y.stride())


def sizes_of(strides):
    return tuple(s if type(s) is int else s.node.hint for s in strides)


NORMS = {
    "training": lambda x: F.batch_norm(x, torch.zeros(3), torch.ones(3), torch.ones(3), None, True),
    "with averages": lambda x: F.batch_norm(x, torch.zeros(3), torch.ones(3)),
    "of each batch": lambda x: F.batch_norm(x, None, None, training=True),
    "of each item": F.instance_norm,
    "of groups": lambda x: F.group_norm(x, 1, torch.ones(3)),
    "of the last": lambda x: F.layer_norm(x, [x.shape[-1]]),
}


@pytest.mark.parametrize("symbols", [False, True])
@pytest.mark.parametrize("name", NORMS)
def test_of_normalised_values(name, symbols):
    draw = random.Random(name)
    for _ in range(40):
        spatial = [draw.randint(2, 4) for _ in range(draw.randint(1, 3))]
        x = drawn([draw.randint(2, 4), 3, *spatial], draw)
        mode = CaptureFakeMode()
        if symbols:
            mode.use_symbols(CaptureShapeEnv(tuple))
        given = mode.from_tensor(x, static_shapes=not symbols)
        with mode:
            fake = NORMS[name](given)
        assert sizes_of(fake.stride()) == NORMS[name](x).stride(), (x.shape, x.stride())
