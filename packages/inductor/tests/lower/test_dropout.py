"""Dropout in generated kernels on CUDA: eager's numbers, by Triton's interpreter and an independent NumPy form."""

import numpy as np
import philox
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor import InductorOptions, lower
from fxstack_inductor.codegen.triton import draws as triton_draws
from fxstack_inductor.lower.host import draws

pytest.importorskip("triton")

from fxstack_inductor.targets.triton.load import load_triton

SEED, OFFSET = 0x1234_5678_9ABC, 4 << 34
THREADS = 512
DROPOUT = torch.ops.aten.native_dropout.default


@pytest.fixture(autouse=True)
def small_device(monkeypatch):
    """A GPU whose kernels have at most 512 threads, so that threads take several turns."""
    monkeypatch.setattr(draws, "device_threads", lambda _device: THREADS)


class Run:
    """A function compiled with dropout in kernels, for the interpreter."""

    def __init__(self, fn, *examples, mode="fake"):
        graph = make_fx(fn, tracing_mode=mode)(*examples)
        self.lowered, self.call = load_triton(graph, InductorOptions(target="cuda"), draws=True)
        assert not self.lowered.plan.program.fallbacks

    def __call__(self, *inputs, seed=SEED, offset=OFFSET):
        self.generator = philox.Generator(seed, offset)
        with draws.drawing_from(self.generator):
            return self.call(*inputs)


def threads_of(x):
    return min(-(-x.numel() // 256) * 256, THREADS)


def check(x, p=0.3, aligned=16, seed=SEED):
    run = Run(lambda x: DROPOUT(x, p, True), x)
    actual = run(x, seed=seed)
    expected = philox.dropout(x, p, threads_of(x), seed % 2**64, OFFSET, aligned)
    # Triton's interpreter cuts bfloat16 off; a GPU rounds it.
    rtol = 2**-7 if x.dtype is torch.bfloat16 else 0
    for got, wanted in zip(actual, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=rtol, atol=0, equal_nan=True)
        assert got.stride() == DROPOUT(x, p, True)[0].stride()
    assert run.generator.reserved == [((x.numel() - 1) // (threads_of(x) * 4) + 1) * 4]


def randn(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ([0] * 4, (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([2**32 - 1] * 4, (2**32 - 1,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_the_reference_has_the_known_answers_of_random123(counter, key, words):
    assert [f"{word:08x}" for word in philox.philox(np.array(counter), key)] == words.split()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("count", [1, 6, 20, 1000, 4104, 8200, 4105])
def test_values_and_masks_are_eager_s(dtype, count):
    check(randn(count, dtype=dtype))


@pytest.mark.parametrize("seed", [0, 2**31, 2**62 + 5, -3])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.999])
def test_seeds_and_probabilities(seed, p):
    check(randn(4104), p, seed=seed)


@pytest.mark.parametrize(
    "x",
    [
        randn(40, 60).t(),
        randn(33, 61).t(),
        randn(4, 12, 5, 20).to(memory_format=torch.channels_last),
        randn(40, 60)[:, :32],
        randn(40, 61)[::2],
        randn(1, 60).expand(40, 60),
        randn(3, 1, 1000).transpose(0, 2),
        torch.full((2000,), float("inf")),
        torch.tensor(1.5),
    ],
    ids=str,
)
def test_layouts_and_special_values(x):
    check(x)


@pytest.mark.parametrize("offset", [1, 2, 4, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_address_of_an_input_counts(offset, dtype):
    x = torch.zeros(4100, dtype=dtype)
    x.set_(x.untyped_storage(), (-x.data_ptr() % 64) // dtype.itemsize + offset, (2048,), (1,))
    check(x.fill_(3), aligned=(offset * dtype.itemsize) & -(offset * dtype.itemsize))


def test_the_offset_of_a_view_counts():
    run = Run(lambda x: DROPOUT((x * 2)[3:], 0.3, True), randn(4003))
    x = randn(4003)
    expected = philox.dropout((x * 2)[3:], 0.3, THREADS, SEED, OFFSET, aligned=4)
    assert all(torch.equal(a, b) for a, b in zip(run(x), expected, strict=True))


def test_dropouts_of_one_kernel_have_numbers_of_their_own():
    run = Run(lambda x: (DROPOUT(x, 0.3, True)[0] + DROPOUT(x, 0.4, True)[0],), x := randn(4104))
    first = philox.dropout(x, 0.3, THREADS, SEED, OFFSET)[0]
    second = philox.dropout(x, 0.4, THREADS, SEED, OFFSET + 12)[0]
    assert torch.equal(run(x)[0], first + second)
    assert len(run.lowered.source.functions) == 1


def test_symbolic_sizes():
    run = Run(lambda x: DROPOUT(x * 2, 0.3, True), randn(10, 7), mode="symbolic")
    for rows in (4, 9, 640):
        x = randn(rows, 7)
        expected = philox.dropout(x * 2, 0.3, threads_of(x), SEED, OFFSET)
        assert all(torch.equal(a, b) for a, b in zip(run(x), expected, strict=True))
    assert run(randn(0, 7))[0].shape == (0, 7)
    assert run.generator.reserved == []


@pytest.mark.parametrize(("p", "train"), [(1.0, True), (1, None), (0.3, False), (1.0, False)])
def test_what_draws_nothing(p, train):
    run = Run(lambda x: DROPOUT(x, p, train), x := randn(100))
    value, mask = run(x)
    kept = train is False
    assert torch.equal(value, x if kept else x * 0) and torch.equal(mask, torch.full((100,), kept))
    assert run.generator.reserved == []


def test_numbers_are_reserved_in_the_graphs_order_although_nothing_reads_them():
    run = Run(lambda x: (DROPOUT(x, 0.3, True)[0] * 0, DROPOUT(x[:256], 0.3, True)[1])[1:], x := randn(4104))
    (mask,) = run(x)
    assert torch.equal(mask, philox.dropout(x[:256], 0.3, 256, SEED, OFFSET + 12)[1])
    assert run.generator.reserved == [12, 4]


class Recorded(philox.Generator):
    """A generator during the recording of a CUDA graph: replays set the numbers at two addresses."""

    def philox_state(self, count):
        seed, offset, within = super().philox_state(count)
        self.held = [Device(seed), Device(offset - 4)]
        return *self.held, within + 4


class Device:
    is_cuda = True

    def __init__(self, tensor):
        self.tensor = tensor

    def data_ptr(self):
        return self.tensor.data_ptr()


def test_a_recording_reads_the_numbers_that_its_replay_sets(monkeypatch):
    run = Run(lambda x: DROPOUT(x, 0.3, True), x := randn(4104))
    monkeypatch.setattr(philox, "Generator", Recorded)
    expected = philox.dropout(x, 0.3, THREADS, SEED, OFFSET)
    assert all(torch.equal(a, b) for a, b in zip(run(x), expected, strict=True))


def by_four(fn, *inputs):
    """Whether neighbours share a call of Philox; the values are eager's in any case."""
    run = Run(fn, *inputs)
    actual = run(*inputs)
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(triton_draws, "WORDS", 3)  # no number of points is a multiple of 3 everywhere
    try:
        expected = Run(fn, *inputs)
    finally:
        monkeypatch.undo()
    assert "= _eager_uniform_by_four(" not in expected.lowered.triton
    assert all(torch.equal(a, b) for a, b in zip(actual, expected(*inputs), strict=True))
    return "= _eager_uniform_by_four(" in run.lowered.triton


def drop(x):
    return DROPOUT(x * 2, 0.3, True)[0]


@pytest.mark.parametrize(
    ("fn", "shape", "dtype", "shared"),
    [
        (drop, (4104,), torch.bfloat16, True),
        (drop, (4104,), torch.float32, True),
        (drop, (4104,), torch.float64, False),
        (drop, (4102,), torch.float32, False),
        (lambda x: drop(x).sum(-1), (30, 72), torch.bfloat16, True),
        (lambda x: drop(x).sum(-1), (3, 5000), torch.float32, True),
        (lambda x: drop(x).sum(0), (30, 72), torch.bfloat16, False),
        (lambda x: drop(x.sum(-1)), (64, 12), torch.float32, False),
        (lambda x: torch.softmax(drop(x), -1), (8, 6, 36), torch.float32, True),
        (lambda x: drop(x).t() + 1, (36, 64), torch.float32, True),
        (lambda x: drop(x[:, 1:-1]), (36, 64), torch.float32, False),
        (lambda x: x[:, None] + drop(x), (16, 32), torch.float32, True),
        (lambda x: DROPOUT(x, 0.3, True)[0], (4104,), torch.float32, False),
    ],
)
def test_neighbours_share_the_words_of_a_call(fn, shape, dtype, shared):
    x = randn(*shape, dtype=dtype)
    assert by_four(lambda x: (fn(x),), x) is shared


def test_a_neighbour_is_in_the_same_kernel():
    graph = make_fx(lambda x, y: DROPOUT(torch.relu(x), 0.1, True)[0] + y)(randn(64, 64), randn(64, 64))
    assert len(lower(graph, target="cuda").source.functions) == 1
