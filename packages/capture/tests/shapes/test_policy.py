"""Which numbers become symbolic."""

from __future__ import annotations

import pytest
import torch

from fxstack_capture.options import CaptureOptions
from fxstack_capture.shapes.history import DYNAMIC, FrameHistory, Inferred
from fxstack_capture.shapes.marks import mark_dynamic, mark_static, mark_unbacked, marks_of
from fxstack_capture.shapes.policy import Kind, describe_strides, plan_number, plan_tensor
from fxstack_capture.sources import InstanceAttr, Item, Key, Local, pinned

X = Local("x")


def kinds(*tensors, dynamic=None):
    history = FrameHistory()
    for tensor in tensors:
        plan = plan_tensor(tensor, X, history, CaptureOptions(dynamic=dynamic))
    return [size.kind.name for size in plan.sizes]


@pytest.mark.parametrize(
    ("shapes", "dynamic", "expected"),
    [
        ([(3, 4)], None, ["STATIC", "STATIC"]),
        ([(3, 4)], True, ["DUCK", "DUCK"]),
        ([(3, 4), (5, 4)], None, ["DUCK", "STATIC"]),
        ([(3, 4), (5, 4), (5, 6)], None, ["DUCK", "DUCK"]),
        ([(3, 4), (5, 4)], False, ["STATIC", "STATIC"]),
        ([(3, 4), (5,), (3, 4)], None, ["STATIC", "STATIC"]),
    ],
)
def test_sizes(shapes, dynamic, expected):
    assert kinds(*(torch.empty(s) for s in shapes), dynamic=dynamic) == expected


STRIDED = {
    "contiguous": (torch.empty(2, 3, 4), [Inferred(1), Inferred(2), 1]),
    "transposed": (torch.empty(2, 3).t(), [1, Inferred(0)]),
    "slice": (torch.empty(2, 9)[:, :4], [9, 1]),
    "expanded": (torch.empty(3).expand(2, 3), [0, 1]),
    "channels_last": (
        torch.empty(2, 3, 4, 5, memory_format=torch.channels_last),
        [Inferred(2), 1, Inferred(3), Inferred(1)],
    ),
    "scalar": (torch.empty(()), []),
}


@pytest.mark.parametrize("name", STRIDED)
def test_strides_that_follow_from_sizes(name):
    tensor, expected = STRIDED[name]
    assert describe_strides(tensor.size(), tensor.stride()) == expected


def test_changed_stride_is_dynamic():
    history = FrameHistory()
    for width in (9, 10):
        tensor = torch.empty(2, width)[:, :4]
        plan = plan_tensor(tensor, X, history, CaptureOptions())
    assert plan.strides == (DYNAMIC, 1) and not plan.static


def test_marks_are_normalised():
    x = torch.empty(2, 3, 4)
    mark_dynamic(x, -1, max=7)
    mark_static(x, (0, -2))
    marks = marks_of(x)
    assert marks.dynamic[2].max == 7 and marks.static == {0, 1}
    assert [p.kind for p in plan_tensor(x, X, FrameHistory(), CaptureOptions(dynamic=True)).sizes] == [
        Kind.STATIC,
        Kind.STATIC,
        Kind.OWN,
    ]


def test_mark_out_of_range():
    with pytest.raises(IndexError, match="dimension 3 of a tensor that has 2 dimensions"):
        mark_dynamic(torch.empty(2, 3), 3)


def test_mark_unbacked():
    x = torch.empty(2, 3)
    mark_unbacked(x, 0, min=2)
    assert marks_of(x).unbacked[0].min == 2


@pytest.mark.parametrize(
    ("source", "dynamic", "values", "expected"),
    [
        (X, None, [1], Kind.STATIC),
        (X, None, [1, 2], Kind.OWN),
        (X, False, [1, 2], Kind.STATIC),
        (X, True, [1], Kind.OWN),
        (Item(Key(X, "a"), 0), True, [1], Kind.OWN),
        (InstanceAttr(X, "n"), True, [1], Kind.STATIC),
        (InstanceAttr(X, "n"), True, [1, 2], Kind.OWN),
        (Key(pinned({}, "globals()"), "n"), True, [1], Kind.STATIC),
    ],
)
def test_numbers(source, dynamic, values, expected):
    history = FrameHistory()
    for value in values:
        kind = plan_number(value, source, history, CaptureOptions(dynamic=dynamic))
    assert kind is expected
