"""Strides of results: those of fake tensors against those of eager's kernels, for arguments in any order of dimensions."""

import operator
import random

import pytest
import torch
import torch.nn.functional as F

from fxstack_capture.shapes.symbolic.env import CaptureShapeEnv
from fxstack_capture.torch_side.fakes.fake_mode import CaptureFakeMode
from fxstack_interchange.torch_facts.layouts import eager_strides

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


ROLLS = {
    "all": lambda x: x.roll(1),
    "images": lambda x: x.roll(1, 0),
    "channels": lambda x: x.roll(-1, 1),
    "nothing": lambda x: x.roll(0, 1),
    "as_often_as_there_are": lambda x: x.roll(x.shape[0], 0),
    "two": lambda x: x.roll((1, 3), (2, 3)),
    "nothing_last": lambda x: x.roll((1, 0), (2, 3)),
    "nothing_first": lambda x: x.roll((0, 1), (2, -1)),
}


@pytest.mark.parametrize("name", ROLLS)
def test_of_rolls(name):
    draw, mode = random.Random(name), CaptureFakeMode()
    for _ in range(60):
        shape = [draw.randint(1, 3) for _ in range(4)]
        for x in (drawn(shape, draw), torch.rand(shape).to(memory_format=torch.channels_last)):
            with mode:
                fake = ROLLS[name](mode.from_tensor(x))
            assert fake.stride() == ROLLS[name](x).stride(), (x.shape, x.stride())


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
        x = drawn([draw.randint(1, 4), 3, *spatial], draw)
        mode = CaptureFakeMode()
        if symbols:
            mode.use_symbols(CaptureShapeEnv(tuple))
        given = mode.from_tensor(x, static_shapes=not symbols)
        with mode:
            fake = NORMS[name](given)
        assert sizes_of(fake.stride()) == NORMS[name](x).stride(), (x.shape, x.stride())


OPERATORS = {
    operator.attrgetter(name)(torch.ops.aten): count
    for name, count in {
        **dict.fromkeys(("add.Tensor", "eq.Tensor", "div.Tensor", "maximum.default"), 2),
        **dict.fromkeys(("logical_and.default", "atan2.default", "pow.Tensor_Tensor"), 2),
        **dict.fromkeys(("bitwise_and.Tensor", "copysign.Tensor", "remainder.Tensor"), 2),
        **dict.fromkeys(("xlogy.Tensor", "lt.Tensor", "hypot.default"), 2),
        **dict.fromkeys(("where.self", "addcmul.default", "clamp.Tensor"), 3),
    }.items()
}
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool]


def laid_out_somehow(draw, shape, dtype):
    """A tensor that broadcasts to ``shape``: dimensions in any order, some of one element, stepped, expanded or dense."""
    shape = [1 if draw.random() < 0.25 else size for size in shape][draw.choice([0, 0, 0, 1]) :]
    order = draw.sample(range(len(shape)), len(shape))
    kind = draw.choice(["permuted", "stepped", "expanded", "contiguous"])
    sizes = [shape[dim] for dim in order]
    if kind == "stepped" and sizes:
        sizes[-1] *= 2
    made = torch.randint(0, 4, sizes).to(dtype)
    made = made[..., ::2] if kind == "stepped" and sizes else made
    made = made.permute([order.index(dim) for dim in range(len(order))])
    if kind == "expanded" and shape:
        return made.narrow(draw.randrange(len(shape)), 0, 1).expand(shape)
    return made.contiguous() if kind == "contiguous" else made


@pytest.mark.parametrize("op", OPERATORS, ids=str)
def test_of_arguments_of_all_dtypes_and_layouts(op):
    """Arguments of other dtypes than the common one are copied before their strides are looked at."""
    draw, compared = random.Random(str(op)), 0
    for _ in range(400):
        shape = [draw.choice([1, 2, 3, 4]) for _ in range(draw.choice([1, 2, 3, 4]))]
        args = [laid_out_somehow(draw, shape, draw.choice(DTYPES)) for _ in range(OPERATORS[op])]
        args[0] = args[0] > 1 if op is torch.ops.aten.where.self else args[0]
        try:
            result = op(*args)
        except RuntimeError:  # no kernel for these dtypes
            continue
        compared += 1
        said = eager_strides(op, args, {}, result)
        assert said is None or said[0] in {None, result.stride()}, [a.stride() for a in args]
    assert compared > 50


def test_of_what_indices_select():
    """Dimensions of one element of a source, of indices and of both, in any order of memory."""
    draw, func = random.Random(7), torch.ops.aten.index.Tensor
    for _ in range(1500):
        shape = [draw.choice([1, 1, 2, 3]) for _ in range(draw.choice([1, 2, 3, 4]))]
        source = laid_out_somehow(draw, shape, torch.float32)
        selected = [draw.choice([1, 2, 3]) for _ in range(draw.choice([0, 1, 1, 2]))]
        indices = [
            draw.choice([None, laid_out_somehow(draw, selected, torch.int64) * 0]) for _ in source.shape
        ]
        if all(index is None for index in indices):
            continue
        result = func(source, indices)
        said = eager_strides(func, (source, indices), {}, result)
        strides = result.stride() if said is None or said[0] is None else said[0]
        assert meaning(strides, result.shape) == meaning(result.stride(), result.shape)


def meaning(strides, shape):
    """The strides of the dimensions that have more than one element."""
    return [step for step, size in zip(strides, shape, strict=True) if size > 1]


@pytest.mark.parametrize("name", BINARY)
def test_with_symbolic_sizes(name):
    mode = CaptureFakeMode()
    mode.use_symbols(CaptureShapeEnv(lambda: ()))
    for size in (2, 3):
        x, y = torch.rand(2, 5, 3).permute(2, 1, 0), torch.rand(size + 3, 2)[:5]
        fakes = [mode.from_tensor(t, static_shapes=False) for t in (x, y)]
        with mode:
            found = BINARY[name](*fakes)
        strides = [s if type(s) is int else s.node.hint for s in found.stride()]
        assert strides == list(BINARY[name](x, y).stride())
