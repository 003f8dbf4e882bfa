"""Predicted bytes, operations and times, against tensors' sizes, torch's own counter and the GPUs' data sheets."""

from contextlib import nullcontext

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

from fxstack_inductor import decompositions, lower

F = torch.nn.functional
LARGE = (8192, 4096)


def lowered(fn, *shapes, dtype=torch.float32, mode="fake", target="cuda:sm_90"):
    with FakeTensorMode() if mode == "fake" else nullcontext():
        inputs = [torch.empty(shape, dtype=dtype) for shape in shapes]
    graph = make_fx(fn, decomposition_table=decompositions(), tracing_mode=mode)(*inputs)
    return lower(graph, target=target)


def costs(fn, *shapes, **options):
    return lowered(fn, *shapes, **options).predict()


def moved(fn, *shapes, **options):
    return sum(c.read + c.written for c in costs(fn, *shapes, **options))


def seconds(fn, *shapes, target="cuda:sm_90", **options):
    return sum(c.seconds for c in lowered(fn, *shapes, **options).predict(target))


def products(x, w):
    return F.gelu(x @ w.t()) @ w


def counted(fn, *shapes):
    with FlopCounterMode(display=False) as counter:
        fn(*(torch.empty(shape, device="meta") for shape in shapes))
    return counter.get_total_flops()


MEGA = 1 << 20


@pytest.mark.parametrize(
    ("fn", "shapes", "elements"),
    [
        (lambda x: x + 1, [(MEGA,)], 2 * MEGA),
        (lambda x, y: x.sin() * y, [(1024, 1024), (1024,)], 2 * MEGA + 1024),
        (lambda x: x + x.t(), [(1024, 1024)], 2 * MEGA),
        (lambda x: x[::2].clone(), [(2 * MEGA,)], 2 * MEGA),
        (lambda x: x.expand(64, 1024).contiguous(), [(1, 1024)], 65 * 1024),
        (lambda x: x.softmax(-1), [(1024, 1024)], 2 * MEGA),
        (lambda x: x.amax(-1), [(1024, 1024)], MEGA + 1024),
    ],
)
def test_each_element_counts_once(fn, shapes, elements):
    assert moved(fn, *shapes) == 4 * elements


def test_half_precision_moves_half():
    assert 2 * moved(lambda x: x * 2, LARGE, dtype=torch.bfloat16) == moved(lambda x: x * 2, LARGE)


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        (products, [(64, 128), (256, 128)]),
        (lambda x, y: torch.bmm(x, y), [(4, 32, 64), (4, 64, 16)]),
        (lambda x, w: F.conv2d(x, w, padding=1), [(2, 8, 16, 16), (4, 8, 3, 3)]),
    ],
)
def test_operations_of_calls_are_torchs(fn, shapes):
    calls = [c for c in costs(fn, *shapes) if c.programs is None]
    assert sum(c.operations for c in calls) == counted(fn, *shapes)


def test_a_copy_takes_a_launch_and_its_bytes_over_the_bandwidth():
    found = seconds(lambda x: x + 1, LARGE, target="cuda:H200")
    assert found == pytest.approx(2.0e-6 + 2 * 4 * 8192 * 4096 / (0.9 * 4.8e12))


def test_a_large_product_is_bound_by_arithmetic():
    (cost,) = costs(torch.mm, (8192, 8192), (8192, 8192), dtype=torch.bfloat16)
    assert cost.bound == "arithmetic"
    assert 2 * 8192**3 / 989.4e12 < cost.seconds < 2 * 8192**3 / 500e12


def test_nothing_is_faster_than_a_launch():
    assert costs(lambda x: x + 1, (8,))[0].bound == "launch"


def test_newer_gpus_are_predicted_faster():
    times = [seconds(lambda x: x.exp(), LARGE, target=f"cuda:{n}") for n in ("A100", "H100", "H200")]
    assert times == sorted(times, reverse=True)


def test_fusing_saves_what_the_model_says():
    apart = seconds(lambda x: x.sin(), LARGE) + seconds(lambda x: x + 1, LARGE)
    assert seconds(lambda x: x.sin() + 1, LARGE) == pytest.approx(apart / 2)


def test_few_programs_cannot_use_all_memory_bandwidth():
    wide, narrow = (
        costs(lambda x: x.softmax(-1), (1 << 14, 4096)),
        costs(lambda x: x.softmax(-1), (16, 1 << 22)),
    )
    assert sum(c.seconds for c in narrow) > sum(c.seconds for c in wide)


def test_symbolic_sizes_count_as_traced():
    shapes = [(640, 1024), (640, 1024)]
    fn = lambda x, y: x * y + 1
    assert moved(fn, *shapes, mode="symbolic") == moved(fn, *shapes)


def test_report_names_kernels_and_calls():
    text = lowered(products, (64, 128), (256, 128)).report("cuda:H200")
    assert text.startswith("predicted for H200: 6.2 us in 3 launches")
    assert "aten.mm.default" in text
    assert "kernel_1: gelu" in text


def test_an_unknown_gpu_is_named():
    with pytest.raises(
        ValueError, match=r"'cuda:sm_70' is not known to the cost model: known are 'cuda:A100'"
    ):
        lowered(products, (4, 8), (3, 8), target="cuda:sm_70")
