"""Fake kernels beside real ones, over a sample of torch's operators: ``sweeps/kernels.py`` runs all of them."""

import kernels_beside as kb
import pytest
import torch

SAMPLED = 41
"""Every so many-th operator of the database."""

REFUSED = {("aten.constant_pad_nd.default", "raises")}
"""Torch's kernel for fake tensors cannot cut symbolic sizes: a graph break, not a wrong result."""


def assert_same(beside):
    assert beside.counts["compared"] > 20
    assert not {k: v for k, v in beside.found.items() if k not in REFUSED}


@pytest.mark.parametrize("layout", ["plain", "permuted", "channels_last", "expanded"])
def test_operators_on_memory_in_any_order(layout):
    programs = kb.of_operators(
        kb.op_db[::SAMPLED], dtypes=(torch.float32,), layouts=(layout,), samples=2
    )
    assert_same(kb.run(programs))


def test_operators_of_two_dtypes():
    assert_same(kb.run(kb.of_pairs(kb.op_db[:: 2 * SAMPLED], samples=1)))


def test_operators_on_symbolic_sizes():
    programs = kb.of_operators(
        kb.op_db[:: 2 * SAMPLED], dtypes=(torch.float32,), layouts=("permuted",), samples=1
    )
    assert_same(kb.run(programs, symbols=True))
