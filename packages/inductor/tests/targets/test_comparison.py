"""The comparison of dropout in kernels with torch's numbers, on a GPU that the interpreter and NumPy play."""

import contextlib
import warnings

import philox
import pytest
import torch

from fxstack_inductor import InductorOptions
from fxstack_inductor.lower.host import draws

pytest.importorskip("triton")

from fxstack_inductor.targets.triton import comparison
from fxstack_inductor.targets.triton.load import load_triton

THREADS = 256
OPTIONS = InductorOptions(target="cuda")
compiled = []


def load(graph, options):
    compiled.append(graph)
    assert options.dropout == "generated" and not options.cuda_graphs
    return load_triton(graph, options, draws=True)[1]


def by_eager(x, generator):
    seed, offset, _ = generator.philox_state(((x.numel() - 1) // (THREADS * 4) + 1) * 4)
    return philox.dropout(x, comparison.P, THREADS, seed.item(), offset.item())


@pytest.fixture(autouse=True)
def device(monkeypatch):
    """A GPU with 256 threads whose tensors are on CPU."""
    compiled.clear()
    full = comparison._inputs
    monkeypatch.setattr(draws, "device_threads", lambda _: THREADS)
    monkeypatch.setattr(comparison, "device_threads", lambda _: THREADS)
    monkeypatch.setattr(comparison, "_RESULTS", {})
    monkeypatch.setattr(comparison, "_by_eager", by_eager)
    monkeypatch.setattr(
        comparison, "_generator", lambda _: philox.Generator(comparison.SEED, comparison.OFFSET)
    )
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    ones = torch.ones
    with monkeypatch.context() as patch:
        patch.setattr(torch, "ones", lambda *args, device, **options: ones(*args, **options))
        # Triton's interpreter rounds bfloat16 in another way.
        inputs = [x for x in full(0) if x.dtype is not torch.bfloat16]
    monkeypatch.setattr(comparison, "_inputs", lambda _: inputs)


def test_equal_numbers_are_compared_once():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert comparison.draws_like_eager(0, OPTIONS, load)
        assert comparison.draws_like_eager(0, OPTIONS, load)
    assert len(compiled) == 1


def otherwise(x, generator):
    value, mask = by_eager(x, generator)
    return value, mask.flip(0)


def more(x, generator):
    found = by_eager(x, generator)
    generator.philox_state(4 * (x.numel() % 2))
    return found


@pytest.mark.parametrize(
    ("torchs", "reason"),
    [(otherwise, "draws other numbers for"), (more, "reserves another count of numbers")],
)
def test_other_numbers_keep_atens_kernel_with_one_warning(monkeypatch, torchs, reason):
    monkeypatch.setattr(comparison, "_by_eager", torchs)
    with pytest.warns(UserWarning, match=f"dropout on GPU 0 runs by ATen's kernel.*{reason}") as said:
        assert not comparison.draws_like_eager(0, OPTIONS, load)
        assert not comparison.draws_like_eager(0, OPTIONS, load)
    assert len(said) == 1
