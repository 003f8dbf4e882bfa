"""The option ``nan_asserts``: inputs and stored tensors with NaN or infinite elements raise."""

from dataclasses import replace

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor import compile_graph, options_from_environment
from fxstack_inductor.errors import NotFiniteError


def call(fn, x, **options):
    graph = make_fx(fn, tracing_mode="fake")(torch.ones(4))
    chosen = options_from_environment({})
    return compile_graph(graph, options=replace(chosen, **options))(x)


def finite(x):
    return (x.log() * 2,)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("nan"), "NaN in the input x_1"),
        (float("inf"), "an infinite element in the input x_1"),
        (-1.0, r"NaN in .*, which kernel_0 \(mul\) stores"),
        (0.0, "an infinite element in .*, which kernel_0"),
    ],
)
def test_elements_that_are_no_numbers_raise(value, text):
    with pytest.raises(NotFiniteError, match=text):
        call(finite, torch.full((4,), value), nan_asserts=True)
    call(finite, torch.full((4,), value))


def test_numbers_pass():
    (result,) = call(finite, torch.full((4,), 2.0), nan_asserts=True)
    torch.testing.assert_close(result, torch.full((4,), 2.0).log() * 2)


def test_the_error_is_torchs_class():
    assert issubclass(NotFiniteError, AssertionError)
