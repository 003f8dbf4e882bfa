"""Which operators have effects."""

import pytest
import torch

from fxstack_interchange.effects import is_ordered

aten = torch.ops.aten


@torch.library.custom_op("fxstack_interchange_test::say", mutates_args=())
def say(tag: str) -> None:
    pass


@torch.library.custom_op("fxstack_interchange_test::scale_", mutates_args={"x"})
def scale_(x: torch.Tensor) -> None:
    x.mul_(2)


@torch.library.custom_op("fxstack_interchange_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (aten._print.default, True),
        (torch.ops.fxstack_interchange_test.say.default, True),
        (torch.ops.fxstack_interchange_test.scale_.default, False),
        (torch.ops.fxstack_interchange_test.twice.default, False),
        (aten.add.Tensor, False),
        (aten._assert_async.msg, False),
        (torch.ops.higher_order.cond, False),
        (torch.sin, False),
        ("sin", False),
    ],
)
def test_is_ordered(target, expected):
    assert is_ordered(target) is expected
