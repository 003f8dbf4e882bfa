"""Fake kernels beside real ones, over a sample of torch's operators: ``sweeps/kernels.py`` runs all of them."""

import pytest
from kernels_apart import other_process, sample

SAMPLED = 41
"""Every so many-th operator of the database."""

REFUSED = {("aten.constant_pad_nd.default", "raises")}
"""Torch's kernel for fake tensors cannot cut symbolic sizes: a graph break, not a wrong result."""


@pytest.fixture(scope="module")
def process():
    with other_process() as pool:
        yield pool


def assert_same(process, family, every, **options):
    counts, found = process.submit(sample, family, every, options).result()
    assert counts["compared"] > 20
    assert not {k: v for k, v in found.items() if k not in REFUSED}


@pytest.mark.parametrize("layout", ["plain", "permuted", "channels_last", "expanded"])
def test_operators_on_memory_in_any_order(process, layout):
    assert_same(process, "of_operators", SAMPLED, dtypes=["float32"], layouts=(layout,), samples=2)


def test_operators_of_two_dtypes(process):
    assert_same(process, "of_pairs", 2 * SAMPLED, samples=1)


def test_operators_on_symbolic_sizes(process):
    layouts = ("permuted",)
    assert_same(
        process, "of_operators", 2 * SAMPLED, dtypes=["float32"], layouts=layouts, samples=1, symbols=True
    )
