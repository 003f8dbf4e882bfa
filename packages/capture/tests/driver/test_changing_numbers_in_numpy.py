"""Python numbers that change from call to call, given to NumPy: never the result for another number."""

import numpy as np
import pytest
import torch

import fxstack_capture as fx

X = torch.arange(4.0)
ARRAY = np.arange(4)
BYTES = ARRAY.astype(np.int8)

FUNCTIONS = {
    "sqrt": np.sqrt,
    "of a fraction": lambda n: np.cos(n * 0.1),
    "scalar": lambda n: np.float64(n) + 1,
    "two": lambda n: np.maximum(n, 3),
    "in a list": lambda n: np.mean([n, 2]),
    "keyword": lambda n: np.round(n / 3, decimals=n % 3),
    "type": lambda n: np.dtype("f4").type(n),
    "clip": lambda n: np.clip(n, 1, 3),
    "array": lambda n: np.arange(n).sum() + np.array([n, 1])[0],
    "beside an array": lambda n: (ARRAY * n).sum() + ARRAY[:n].sum(),
    "beyond the elements": lambda n: np.clip(BYTES, 0, n * 40).sum(),
    "chosen": lambda n: np.where(BYTES > 1, n * 40, 0).sum(),
    "type of a result": lambda n: np.min_scalar_type(n * 100).itemsize,
}


class State:
    number = 0


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_number_gives_its_own_result(name):
    fn, state = FUNCTIONS[name], State()

    def program(x):
        state.number += 1
        return x * float(fn(state.number))

    expected = [program(X) for _ in range(5)]
    state.number = 0
    compiled = fx.optimize()(program)
    assert all(torch.equal(compiled(X), result) for result in expected)


@pytest.mark.parametrize("limit", [3, 127, 129, 300])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64"])
def test_limits_that_elements_cannot_be(dtype, limit):
    def program(x):
        array = x.numpy().astype(dtype)
        return np.clip(array, 0, limit), array.clip(0, limit)

    found, expected = fx.optimize()(program)(X), program(X)
    assert all(map(np.array_equal, found, expected))
    assert [array.dtype for array in found] == [array.dtype for array in expected]
