"""In-place operators on lists whose result does not fit a tensor: refused exactly where eager raises."""

from itertools import product

import pytest
import torch
from compare import check, refuses

TYPES = (torch.bool, torch.int64, torch.float32, torch.float64, torch.complex64)


def items(*dtypes):
    """A list of one tensor for each type."""
    return [torch.ones(2, dtype=dtype) for dtype in dtypes]


NAMES = ("add", "sub", "mul", "addcmul", "addcdiv")


@pytest.mark.parametrize("name", NAMES)
def test_lists(name):
    for target, *others in product(TYPES, repeat=3 if name.startswith("addc") else 2):
        agrees(name, target, *([dtype] for dtype in others))


@pytest.mark.parametrize(("name", "number"), product(NAMES[:3], (2, 0.5, 1j, True)))
def test_numbers(name, number):
    for target in TYPES:
        agrees(name, target, number)
        agrees(name, target, [number])


@pytest.mark.parametrize(("target", "other"), product(TYPES, TYPES))
def test_tensors_without_dimensions(target, other):
    agrees("mul", target, torch.ones((), dtype=other))


def test_the_reason_names_the_types():
    call = lambda x: torch._foreach_mul_([x], 0.5)
    refuses(
        call,
        lambda: (torch.ones(2, dtype=torch.int64),),
        "results of torch.float32 to a tensor of torch.int64",
    )


def agrees(name, target, *others):
    """A call whose result does not fit is refused, and one that eager knows changes the tensor as in eager."""
    function = getattr(torch, f"_foreach_{name}_")

    def call(x):
        function([x], *(items(*other) if is_list_of_types(other) else other for other in others))
        return x * 1

    make = lambda: items(target)
    try:
        call(*make())
    except RuntimeError as error:
        if "can't be cast" in str(error):
            refuses(call, make, "results of")
    else:
        check(call, make)


def is_list_of_types(value):
    return isinstance(value, list) and all(isinstance(item, torch.dtype) for item in value)
