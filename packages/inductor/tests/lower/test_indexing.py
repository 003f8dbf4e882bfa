"""Joins, padding and look-ups; indices out of range raise what eager raises."""

import pytest
import torch
from inductor_checks import check, externs, fused, kernels

F = torch.nn.functional
X = torch.randn(6, 10)
ROWS = torch.tensor([[0, 5, 2], [3, 3, 1]])


def test_joins():
    assert fused(check(lambda a, b: torch.cat([a, b * 2, a], 1) + 1, X, X.sin()))
    check(lambda a: torch.stack([a, a.cos()], -1).flatten(1), X)
    check(lambda a: torch.cat([a, a.double()]), X)


def test_padding():
    assert fused(check(lambda a: F.pad(a, (1, 2, 0, 3), value=2.0) * 3, X))
    check(lambda a: F.pad(a, (-1, 2)), X)


def test_reordering():
    check(lambda a: (a.flip(0), torch.roll(a, (1, 3), (0, 1)), a.repeat(2, 3), a.tril(), a.triu(2)), X)


def test_scatter_of_slices():
    def write(a, b):
        a = a.clone()
        a[2:4] = b
        a[:, 1] = 7.0
        return a

    check(write, X, torch.randn(2, 10))


@pytest.mark.parametrize("offset", [0, 1, -2, 9, -9])
def test_scatter_of_diagonals(offset):
    x = X * 2
    part = x.diagonal(offset).exp()
    assert fused(check(lambda a, b: (a * 2).diagonal_scatter(b, offset) + 1, X, part))
    cube = torch.randn(4, 3, 4)
    part = cube.diagonal(offset // 4, 2, 0)
    check(lambda a, b: (a * 2).diagonal_scatter(b, offset // 4, 2, 0), cube, part)


def test_look_ups():
    check(lambda w, i: (F.embedding(i, w), w[i], w[:, i], w[i, i], w.index_select(0, i[0])), X, ROWS)
    check(lambda w, i: w[i - 6].sum(-1), X, ROWS)
    check(lambda w, i: w.gather(0, i), X[:, :3], ROWS)


@pytest.mark.parametrize(
    "look_up", [lambda w, i: w[i], lambda w, i: F.embedding(i, w), lambda w, i: w.gather(0, i)]
)
def test_bad_index_raises_what_eager_raises(look_up):
    weight = X[:, :3].contiguous()
    compiled = check(look_up, weight, ROWS)
    bad = ROWS + 3
    with pytest.raises((IndexError, RuntimeError)) as wanted:
        look_up(weight, bad)
    with pytest.raises(type(wanted.value)) as got:
        compiled(weight, bad)
    assert str(got.value).splitlines()[0] == str(wanted.value).splitlines()[0]
    check(look_up, weight, ROWS)


def test_after_a_bad_index_good_ones_work():
    compiled = check(lambda w, i: w[i] * 2, X, ROWS)
    with pytest.raises(IndexError):
        compiled(X, ROWS + 9)
    assert torch.equal(compiled(X, ROWS)[0], X[ROWS] * 2)


def test_masks_select_through_aten():
    compiled = check(lambda x: x[x > 0].sum(), X)
    assert externs(compiled)


@pytest.mark.parametrize(
    "look_up",
    [
        lambda i: torch.ones(3)[i],
        lambda i: torch.zeros(3, 4)[i] + 1,
        lambda i: torch.full((3,), 2.0).sin()[i],
        lambda i: torch.ones(1).expand(3)[i],
        lambda i: torch.ones(3, 4).gather(0, i[:, None]),
        lambda i: torch.ones(3).index_select(0, i),
    ],
)
def test_tables_that_are_the_same_everywhere_check_their_indices(look_up):
    compiled = check(look_up, torch.tensor([0, 2]))
    with pytest.raises((IndexError, RuntimeError), match="out of bounds|out of range"):
        compiled(torch.tensor([0, 7]))


@pytest.mark.parametrize("part", [slice(1, None), slice(-2, None), slice(1, 6, 2), slice(None)])
def test_parts_written_to_in_unknown_sizes(part):
    def write(x):
        return torch.slice_scatter(x, x[:, part] * 5, 1, part.start, part.stop, part.step or 1)

    others = [(torch.randn(rows, columns),) for rows, columns in ((5, 7), (3, 12), (7, 8))]
    assert not externs(check(write, torch.randn(4, 9), symbolic=True, others=others))


def pairs(x):
    """Every element, picked one by one."""
    return x[torch.arange(x.shape[0])[:, None], torch.arange(x.shape[1])] * 2


COUNTED = [
    pairs,
    lambda x: pairs(x[:1].expand(4, x.shape[1])),
    lambda x: x[torch.arange(2) - 2] + 1,
    lambda x: x.index_select(0, torch.arange(2) * 1 + 1) * 2,
    lambda x: x.gather(1, torch.arange(2).expand(2, 2)) - 1,
    lambda x: F.embedding(torch.arange(3), x) * 2,
]


@pytest.mark.parametrize("look_up", COUNTED)
def test_counted_indices_look_nothing_up(look_up):
    compiled = check(look_up, X)
    assert not externs(compiled)
    assert not any(kernel.checked for kernel in kernels(compiled))


def test_counted_indices_of_unknown_sizes_look_nothing_up():
    others = [(torch.randn(5, 7),), (torch.randn(3, 12),)]
    compiled = check(pairs, torch.randn(4, 9), symbolic=True, others=others)
    assert not any(kernel.checked for kernel in kernels(compiled))


@pytest.mark.parametrize("first", [3, -9])
def test_counted_indices_out_of_range_raise_what_eager_raises(first):
    def look_up(x, n):
        return x[torch.arange(4) + n]

    with pytest.raises(IndexError) as wanted:
        look_up(torch.zeros(6, 10), first)
    with pytest.raises(IndexError) as got:
        check(lambda x: look_up(x, first), torch.zeros(6, 10))
    assert str(got.value).splitlines()[0] == str(wanted.value).splitlines()[0]
