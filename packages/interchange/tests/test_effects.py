"""Which operators have effects."""

import pytest
import torch

from fxstack_interchange.torch_facts.effects import is_ordered, may_act

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


def node_of(target, *args):
    return torch.fx.Graph().call_function(target, args)


@pytest.mark.parametrize(
    ("target", "args", "expected"),
    [
        (torch.ops.fxstack_interchange_test.twice.default, (), True),
        (torch.ops.fxstack_interchange_test.scale_.default, (), True),
        (
            torch.ops.higher_order.auto_functionalized_v2,
            (torch.ops.fxstack_interchange_test.scale_.default,),
            True,
        ),
        (torch.ops.higher_order.auto_functionalized_v2, (aten.add_.Tensor,), False),
        (aten.add.Tensor, (), False),
        (torch.ops.prims.convert_element_type.default, (), False),
        (torch.sin, (), False),
    ],
)
def test_may_act(target, args, expected):
    assert may_act(node_of(target, *args)) is expected
