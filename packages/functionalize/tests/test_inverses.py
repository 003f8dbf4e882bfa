"""Changes through views that torch's functionalisation cannot write back: with gaps, overlaps, or expanded."""

import pytest
import torch
import torch.nn.functional as F
from compare import check, refuses


def unfolded(x):
    windows = x.view(-1).unfold(0, 1, 3)
    windows.add_(windows)
    return x * 1, windows


def through_detach(x):
    x.view(-1).unfold(0, 2, 3).detach().mul_(2)
    return x * 1


CHANGES = {
    "gaps": unfolded,
    "overlaps": lambda x: (x.view(-1).unfold(0, 3, 1)[1].add_(1), x * 1)[1],
    "rest": lambda x: (x.unfold(0, 3, 3).zero_(), x * 1)[1],
    "expanded": lambda x: (x.expand(3, 4, 4)[1].fill_(2), x * 1)[1],
    "expanded to itself": lambda x: (x.mul_(1e30).expand_as(x).fill_(2), x * 1)[1],
    "strided": lambda x: (x.as_strided((3, 3), (1, 1))[1].add_(1), x * 1)[1],
    "other view": lambda x: (x.view(-1), x.unfold(0, 1, 2).neg_())[0],
    "list": lambda x: (torch._foreach_add_([x.unfold(0, 1, 3)], 2.0), x * 1)[1],
    "inplace": lambda x: (F.relu(x.unfold(0, 1, 3), inplace=True), F.celu(x[:1], 2.0, True), x * 1)[2],
    "out": lambda x: (torch.add(x[1:3], 1, out=x.unfold(0, 1, 3)[..., 0]), x * 1)[1],
    "detached": through_detach,
}
make = lambda: (torch.arange(1.0, 17.0).view(4, 4),)  # noqa: E731 - one line


def training():
    return (torch.arange(1.0, 17.0).view(4, 4).requires_grad_(),)


@pytest.mark.parametrize("name", CHANGES)
def test_written_back_exactly(name):
    check(CHANGES[name], make)


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("before", ["add_", "mul_"])
def test_written_back_to_what_was_changed_and_lies_behind_others(name, before):
    """The present value then starts at 0, and the tensor in eager does not."""

    def program(x):
        getattr(x, before)(2)
        return CHANGES[name](x), x

    check(program, lambda: (torch.arange(1.0, 21.0)[4:].view(4, 4),))


@pytest.mark.parametrize(
    "name", ["gaps", "overlaps", "rest", "expanded", "strided", "other view", "detached"]
)
def test_gradients(name):
    check(lambda x: CHANGES[name](x.clone()), training)


def test_offset_of_the_storage():
    def fn(x):
        view = x.as_strided((3,), (2,), x.storage_offset())
        x.add_(1)
        view.mul_(2)
        return x * 1

    def late(x):
        x.add_(1)
        x.as_strided((3,), (2,), x.storage_offset()).mul_(2)
        return x * 1

    for program in (fn, late):
        check(program, lambda: (torch.arange(16.0)[3:11],))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x[0].fill_(1),
        lambda x: torch._foreach_add_([x], 1.0),
        lambda x: torch.add(x, 1, out=x),
        lambda x: x[2].detach().mul_(2),
        lambda x: x.unbind(0)[1].data.add_(1),
    ],
)
def test_overlapping_inputs_are_left_to_eager(fn):
    refuses(fn, lambda: (torch.ones(4).expand(3, 4),), "share memory")


def test_normal_numbers_for_a_tensor_with_gaps_are_left_to_eager():
    """From 16 elements on eager draws for dense tensors by vectors, and one by one for others."""
    refuses(lambda x: x.normal_(), lambda: (torch.zeros(66)[::2],), "gaps between its elements")
    check(lambda x: x.normal_() * 1, lambda: (torch.zeros(20)[::2],))
    check(lambda x: x.normal_() * 1, lambda: (torch.zeros(8, 6).t(),))


def test_other_dtypes_are_left_to_eager():
    refuses(
        lambda x: x.view(torch.int32).unfold(0, 1, 3).neg_(),
        lambda: (torch.ones(4),),
        "overlapping elements, or one with gaps",
    )


def test_a_leaf_that_is_not_contiguous():
    """ATen refuses to scatter into a tensor that requires a gradient, also where none is recorded."""

    def program(x):
        doubled = x * 2
        with torch.no_grad():
            x.expand(1, *x.shape).mul_(3)
        return doubled, x

    check(program, lambda: (torch.arange(1.0, 13.0).view(3, 4).t().requires_grad_(),))
