"""In-place operators between tensors that share memory: compiled where these are apart or the same, else left to eager."""

import random

import numpy as np
import pytest
import torch
from compare import check, compiled, dynamic, refuses

from fxstack_functionalize import UnsupportedGraphError
from fxstack_functionalize.views.overlap import Elements, elements_of, may_overlap


def rows_in_lists(x):
    torch._foreach_add_([x[0], x[1]], [x[2], x[3]])
    torch._foreach_mul_(list(x), list(x))
    return x * 1


def parts(x):
    x[0] += 1
    x[0] = x[1]
    x[:, 2:] = x[:, :2]
    x[2, ::2] -= x[3, 1::2]
    return x * 1


APART = {
    "halves": lambda x: (x[:, :2].mul_(x[:, 2:]), x * 1)[1],
    "itself": lambda x: x.add_(x).copy_(x) * 1,
    "parts": parts,
    "lists": rows_in_lists,
    "out": lambda x: torch.add(x[0], x[1], out=x[2]) * 1,
    "diagonal": lambda x: (x[1:, 0].add_(x.diagonal()[1:]), x * 1)[1],
}
MIXED = {
    "shifted": lambda x: x.view(-1)[1:].add_(x.view(-1)[:-1]),
    "assigned": lambda x: x.view(-1).__setitem__(slice(1, None), x.view(-1)[:-1]),
    "a row": lambda x: x.sub_(x[0]),
    "one element": lambda x: x.div_(x[0, 0]),
    "transposed": lambda x: x.copy_(x.t()),
    "transposed part": lambda x: x[:, :3].add_(x[:3].t()),
    "scattered from itself": lambda x: x.index_add_(0, torch.tensor([0, 1, 2, 3]), x),
    "out": lambda x: torch.mul(x[1:], 2, out=x[:-1]),
    "lists in turn": lambda x: torch._foreach_add_([x[0], x[1]], [x[1], x[2]]),
    "lists written twice": lambda x: torch._foreach_add_([x[0], x[:1].view(-1)], 1.0),
}
make = lambda: (torch.arange(1.0, 17.0).view(4, 4),)  # noqa: E731 - one line


@pytest.mark.parametrize("name", APART)
def test_compiled(name):
    check(APART[name], make)


@pytest.mark.parametrize("name", MIXED)
def test_left_to_eager(name):
    refuses(MIXED[name], make, "overlap in part")


def test_places_are_those_of_numpy():
    """Slices with steps of a matrix and its transpose, against NumPy's exact answer: ours may only say yes too often."""
    generator = np.random.default_rng(5)
    base = torch.arange(64.0).view(8, 8)
    for _ in range(300):
        one, other = (_slice(base, generator) for _ in range(2))
        assert may_overlap(elements_of(one), elements_of(other)) >= bool(
            np.shares_memory(one.numpy(), other.numpy())
        )


def test_slices_of_one_tensor_are_told_apart_exactly():
    generator = np.random.default_rng(6)
    base = torch.arange(64.0).view(8, 8)
    for _ in range(300):
        one, other = (_slice(base, generator, step=1) for _ in range(2))
        assert may_overlap(elements_of(one), elements_of(other)) == bool(
            np.shares_memory(one.numpy(), other.numpy())
        )


def test_plain_places_are_compared_byte_by_byte():
    draw = random.Random(7)
    for _ in range(2000):
        one, other = (_place(draw) for _ in range(2))
        assert may_overlap(one, other) == (not _bytes(one).isdisjoint(_bytes(other))), (one, other)


def _place(draw):
    dims = tuple(
        (draw.choice([0, 1, 2, 3, 5, 8, 9, 24]), draw.randrange(1, 5)) for _ in range(draw.randrange(4))
    )
    return Elements(draw.randrange(40), dims, draw.choice([1, 2, 4]))


def _bytes(place):
    found = {place.offset + byte for byte in range(place.width)}
    for stride, size in place.dims:
        found = {start + stride * number for start in found for number in range(size)}
    return found


WINDOWS = {
    "unfold": lambda x: x.unfold(0, 2, 1).add_(1),
    "of a result": lambda x: (x * 2).unfold(0, 2, 1).mul_(2),
    "as_strided": lambda x: x.as_strided((2, 2, x.shape[1]), (x.shape[1], x.shape[1], 1)).fill_(1),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_of_symbolic_strides_are_left_to_eager(name):
    with pytest.raises(UnsupportedGraphError, match="several elements share memory"):
        compiled(WINDOWS[name], dynamic((torch.ones(5, 6),)))


def _slice(base, generator, step=None):
    slices = []
    for _ in range(2):
        start, stop = sorted(generator.integers(0, 9, 2))
        slices.append(slice(start, stop, step or generator.integers(1, 4)))
    made = base[tuple(slices)]
    return made.t() if step is None and generator.integers(2) else made


ONE_ROW = {
    "row": lambda x: x.add_(x[0]),
    "flat": lambda x: x.mul_(x.view(-1)),
    "step": lambda x: x[::2].add_(x),
    "copy": lambda x: x.copy_(x[0]),
    "number": lambda x: x[:, :1].add_(x[:, :1].t()),
    "clamp": lambda x: x.clamp_(x[0]),
    "list": lambda x: torch._foreach_add_([x], [x[0]]),
    "assigned": lambda x: x.__setitem__((0, slice(1)), x[:, 0]),
}
NO_PART = {
    "itself": lambda x: x.add_(x),
    "item": lambda x: x.__setitem__(0, x[0]),
    "own row": lambda x: x[0].add_(x[0]),
}


@pytest.mark.parametrize("name", ONE_ROW)
def test_the_same_elements_by_other_strides_are_left_to_eager(name):
    """Eager refuses them as a part of each other, though the stride of a dimension of size one means nothing."""
    with pytest.raises(RuntimeError, match="single memory location"):
        ONE_ROW[name](torch.ones(1, 4))
    refuses(ONE_ROW[name], lambda: (torch.ones(1, 4),), "also reads")


@pytest.mark.parametrize("name", NO_PART)
def test_the_same_elements_of_one_row(name):
    check(lambda x: (NO_PART[name](x), x)[1], lambda: (torch.arange(4.0).view(1, 4),))


def test_a_call_whose_inputs_lie_otherwise_than_in_the_last_call():
    def fn(x, y):
        x.add_(1)
        return y * 2

    memory, plain = torch.arange(8.0), torch.arange(8.0)
    run = compiled(fn, (memory[:4], memory[4:]))
    for start in (4, 4, 2, 4, 0, 0, 4, 3):
        assert torch.equal(
            run(memory[:4], memory[start : start + 4]), fn(plain[:4], plain[start : start + 4])
        )
        assert torch.equal(memory, plain)
