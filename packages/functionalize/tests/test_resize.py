"""``resize_`` and ``set_`` of what the graph has computed."""

import pytest
import torch
from compare import check, refuses
from helpers import run_graph, save_everything
from test_semantics import leaf

from fxstack_functionalize import aot


def images():
    return (torch.arange(24.0).view(1, 2, 3, 4),)


def resized(*size, then=lambda y: y, **format_):
    return lambda x: then((x * 2).resize_(*size, **format_))


def like(other, **format_):
    def program(x):
        y = x.new_empty(0)
        return y.resize_as_(other(x), **format_).copy_(x), y * 2

    return program


def channels_last(x):
    return x.to(memory_format=torch.channels_last)


def two_views_of_one_memory(x):
    y = x * 2
    other = y.data
    y.resize_(6)
    other.resize_(4)
    return y, other


def a_view_is_resized(x):
    y = x * 2
    y[0, 1].resize_(3).add_(1)
    return y


PROGRAMS = {
    "shrinks": resized(2, 3),
    "grows": resized(5, 6, then=lambda y: y.reshape(-1)[:24] * 1),
    "grows and is written": resized(5, 6, then=torch.Tensor.zero_),
    "channels last": resized(1, 3, 2, 2, memory_format=torch.channels_last),
    "grows in channels last": resized(2, 3, 2, 5, memory_format=torch.channels_last, then=torch.Tensor.zero_),
    "like another": like(lambda x: x),
    "like another in its format": like(channels_last, memory_format=torch.preserve_format),
    "of other strides": lambda x: (channels_last(x * 2) + 1).resize_(2, 4),
    "computed with": resized(2, 3, then=lambda y: y[0].add_(1) * y),
    "two of one memory": two_views_of_one_memory,
    "view": a_view_is_resized,
    "operator": lambda x: torch.ops.aten.resize_(x * 2, [3], memory_format=None),
    "set": lambda x: torch.zeros(3).set_(x * 2).add_(1),
    "set to a view": lambda x: torch.zeros(3).set_((x * 2)[0, 0]).add_(1),
}


def test_to_its_own_sizes():
    check(
        lambda x: (x.t().resize_as_(x.t()), x.resize_(x.shape), x + 1), lambda: (torch.randn(2).expand(3, 2),)
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_the_graph_has_computed(name):
    check(PROGRAMS[name], images)


@pytest.mark.parametrize(
    "fn", [lambda x: (x * 2)[0, 1].resize_(3), lambda x: ((y := (x * 2).resize_(4, 6)), y[1:])]
)
def test_views_of_what_was_resized_are_no_outputs(fn):
    refuses(fn, images, "other memory")


def test_what_has_a_gradient_is_not_resized():
    refuses(resized(2), lambda: (leaf(3),), "cannot resize variables that require grad")


def test_what_is_set_to_nothing_is_empty():
    graph = torch.fx.symbolic_trace(lambda x: (x * 2).set_())
    function = aot(graph, images(), fw_compiler=run_graph, partitioner=save_everything)
    result = function(*images())
    assert (result.shape, result.stride(), result.dtype) == ((0,), (1,), torch.float32)
