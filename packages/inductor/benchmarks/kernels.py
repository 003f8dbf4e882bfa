"""Kernels at three sizes, or ROWSxCOLUMNS: eager, torch.compile's code generator and this package's, alternating in one process.

    python packages/inductor/benchmarks/kernels.py [--only PATTERN] [--sizes small,middle,large,256x2000] [--threads 1]
        [--rounds 7] [--no-torch] [--markdown]

Both code generators are given an ATen graph of the same function, each with its own decompositions, so that capture
and guards play no part. With one thread the processor time of the calling thread is taken, which other work on the
machine distorts least; with more, wall time. A figure is the median over rounds of the mean time of a call; ``GB/s``
counts inputs and outputs once.
"""

import argparse
import math
import re
import statistics
import sys
import time
import warnings
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "testing"))

import torch
from result_tables import Table
from torch._inductor.compile_fx import compile_fx_inner, record_original_output_strides
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F  # noqa: N812 - the customary name
from torch.utils import _pytree as pytree

import fxstack_inductor as fi

warnings.filterwarnings("ignore")
SIZES = {"small": (32, 256), "middle": (512, 1024), "large": (8192, 2048)}


def matrix(rows, columns, *, dtype=torch.float32):
    return torch.randn(rows, columns).to(dtype)


def images(rows, columns):
    """The same number of elements as a batch of images with 16 channels."""
    side = 16
    return torch.randn(max(1, rows * columns // (16 * side * side)), 16, side, side)


def heads(rows, columns):
    return torch.randn(max(1, rows * columns // (8 * 64 * 64)), 8, 64, 64)


def gradient(function):
    """``function``'s gradients with respect to all floating-point arguments, for gradients of ones."""

    def run(*args):
        leaves = [a.detach().requires_grad_() if a.is_floating_point() else a for a in args]
        result = function(*leaves)
        wanted = [a for a in leaves if a.requires_grad]
        return torch.autograd.grad(result, wanted, torch.ones_like(result))

    return run


def adam(p, g, m, v):
    m = m * 0.9 + g * 0.1
    v = v * 0.999 + g * g * 0.001
    return p - 1e-3 * (m / 0.9) / ((v / 0.999).sqrt() + 1e-8), m, v


def momentum(p, g, m):
    m = m * 0.9 + (g + p * 1e-2)
    return p - 0.1 * m, m


def rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def rope_inputs(r, c):
    x = heads(r, c)
    return x, torch.randn(64, 32), torch.randn(64, 32)


def causal(x):
    n = x.shape[-1]
    mask = torch.ones(n, n, dtype=torch.bool).tril()
    return (x * 0.125).masked_fill(~mask, -math.inf).softmax(-1)


def quantise(x):
    scale = x.abs().amax(-1, keepdim=True) / 127
    return torch.clamp(torch.round(x / scale), -128, 127).to(torch.int8), scale


def rms(x, w):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w


def normed(r, c, dtype=torch.float32):
    return matrix(r, c, dtype=dtype), torch.randn(c).to(dtype), torch.randn(c).to(dtype)


def layer_norm(x, w, b):
    return F.layer_norm(x, x.shape[-1:], w, b)


def batch_norm(x, w, b):
    return F.batch_norm(x, None, None, w, b, training=True)


def group_norm(x, w, b):
    return F.group_norm(x, 4, w, b)


def image_norm(r, c):
    return images(r, c), torch.randn(16), torch.randn(16)


def classes(r, c):
    return matrix(r, c), torch.randint(0, c, (r,))


def pair(r, c):
    return matrix(r, c), matrix(r, c)


def table(r, c):
    return matrix(1000, c), torch.randint(0, 1000, (r,))


def picked(r, c):
    return matrix(r, c), torch.randint(0, c, (r, c))


def one(r, c):
    return (matrix(r, c),)


def half(r, c):
    return (matrix(r, c, dtype=torch.bfloat16),)


def image(r, c):
    return (images(r, c),)


def crossed(r, c, dtype=torch.float32):
    """Two matrices, the first of which is transposed before they meet."""
    return matrix(c, r, dtype=dtype), matrix(r, c, dtype=dtype)


def picked_maximum(x):
    i = x.argmax(-1, keepdim=True)
    return x.gather(-1, i) - x.logsumexp(-1, keepdim=True)


def standardised(x):
    return (x - x.mean(0)) / (x.std(0) + 1e-5)


def gated_sums(x, g):
    return torch.cumsum(x * torch.sigmoid(g), -1)


def whole_numbers(r, c):
    return (torch.randint(0, 100, (r, c)),)


DOUBLE, BFLOAT = {"dtype": torch.float64}, {"dtype": torch.bfloat16}


def index_add(x, i):
    return torch.zeros(1000, x.shape[1]).index_add(0, i, x)


KERNELS = {
    "gelu": (F.gelu, one),
    "gelu tanh": (partial(F.gelu, approximate="tanh"), one),
    "gelu bfloat16": (F.gelu, half),
    "silu": (F.silu, one),
    "swiglu": (lambda a, b: F.silu(a) * b, pair),
    "mish": (F.mish, one),
    "gelu backward": (gradient(F.gelu), one),
    "chain": (lambda a, b: torch.where(a > b, a * 2 + b, a - b).clamp(-1, 1).abs() + a, pair),
    "add bfloat16": (lambda a: a * 2 + 1, half),
    "layer norm": (layer_norm, normed),
    "layer norm bfloat16": (layer_norm, partial(normed, dtype=torch.bfloat16)),
    "layer norm backward": (gradient(layer_norm), normed),
    "rms norm": (rms, lambda r, c: (matrix(r, c), torch.randn(c))),
    "batch norm": (batch_norm, image_norm),
    "batch norm backward": (gradient(batch_norm), image_norm),
    "group norm": (group_norm, image_norm),
    "softmax": (lambda x: x.softmax(-1), one),
    "softmax columns": (lambda x: x.softmax(0), one),
    "log softmax": (lambda x: x.log_softmax(-1), one),
    "softmax backward": (gradient(lambda x: x.softmax(-1)), one),
    "causal softmax": (causal, lambda r, c: (heads(r, c),)),
    "logsumexp": (lambda x: x.logsumexp(-1), one),
    "cross entropy": (F.cross_entropy, classes),
    "cross entropy backward": (gradient(F.cross_entropy), classes),
    "mse": (F.mse_loss, pair),
    "bce with logits": (lambda a, b: F.binary_cross_entropy_with_logits(a, b.sigmoid()), pair),
    "smooth l1": (F.smooth_l1_loss, pair),
    "adam": (adam, lambda r, c: (*pair(r, c), *(t.abs() for t in pair(r, c)))),
    "momentum": (momentum, lambda r, c: (*pair(r, c), matrix(r, c))),
    "rope": (rope, rope_inputs),
    "quantise": (quantise, one),
    "dequantise": (
        lambda q, s: q.float() * s,
        lambda r, c: (torch.randint(-128, 128, (r, c), dtype=torch.int8), torch.randn(r, 1)),
    ),
    "sum": (torch.sum, one),
    "sum rows": (lambda x: x.sum(-1), one),
    "sum columns": (lambda x: x.sum(0), one),
    "sum middle": (lambda x: x.sum((0, 2, 3)), image),
    "amax columns": (lambda x: x.amax(0), one),
    "argmax rows": (lambda x: x.argmax(-1), one),
    "argmax columns": (lambda x: x.argmax(0), one),
    "var rows": (lambda x: x.var(-1), one),
    "var columns": (lambda x: x.var(0), one),
    "norm": (lambda x: x.norm(dim=-1), one),
    "transpose": (lambda x: x.t().contiguous(), one),
    "transpose add": (lambda a, b: a.t() + b, lambda r, c: (matrix(c, r), matrix(r, c))),
    "permute heads": (
        lambda x: x.transpose(1, 2).reshape(x.shape[0], 64, -1) * 2,
        lambda r, c: (heads(r, c),),
    ),
    "to channels last": (lambda x: (x + 1).contiguous(memory_format=torch.channels_last), image),
    "embedding": (lambda w, i: F.embedding(i, w) * 2, table),
    "embedding bag": (lambda w, i: F.embedding(i.view(-1, 8), w).sum(1), table),
    "embedding backward": (gradient(lambda w, i: F.embedding(i, w)), table),
    "index add": (index_add, lambda r, c: (matrix(r, c), torch.randint(0, 1000, (r,)))),
    "gather": (lambda x, i: x.gather(1, i), picked),
    "scatter add": (lambda x, i: torch.zeros_like(x).scatter_add(1, i, x), picked),
    "cumsum": (lambda x: x.cumsum(-1), one),
    "loops: maximum less logsumexp": (picked_maximum, one),
    "loops: softmax and argmax": (lambda x: (x.softmax(-1), x.argmax(-1)), one),
    "loops: argmax and entropy": (
        lambda x: (x.argmax(-1), -(x.softmax(-1) * x.log_softmax(-1)).sum(-1)),
        one,
    ),
    "loops: argmax bfloat16": (lambda x: x.argmax(-1), half),
    "loops: gated cumsum": (gated_sums, pair),
    "loops: gated cumsum float64": (
        gated_sums,
        lambda r, c: (matrix(r, c, **DOUBLE), matrix(r, c, **DOUBLE)),
    ),
    "loops: cumprod": (lambda x: (x * 0.01 + 1).cumprod(-1), one),
    "loops: cummax": (lambda x: x.cummax(-1), one),
    "loops: cummax of tanh": (lambda x: x.tanh().cummax(-1)[0], one),
    "loops: logcumsumexp": (lambda x: x.logcumsumexp(-1), one),
    "loops: masked cumsum": (lambda x, g: (x.masked_fill(g > 0, 0) * 2).cumsum(-1), pair),
    "loops: cumsum of integers": (lambda x: x.cumsum(-1), whole_numbers),
    "loops: softmax, then cumsum": (lambda x: x.softmax(-1).cumsum(-1), one),
    "loops: transposed sum": (lambda x, y: (x.t() * y).sum(-1), crossed),
    "loops: transposed sum float64": (lambda x, y: (x.t() * y).sum(-1), partial(crossed, **DOUBLE)),
    "loops: transposed sum bfloat16": (lambda x, y: (x.t() * y).sum(-1), partial(crossed, **BFLOAT)),
    "loops: transposed amax": (lambda x, y: (x.t() + y).amax(-1), crossed),
    "loops: transposed softmax": (lambda x, y: (x.t() + y).softmax(-1), crossed),
    "loops: transposed argmax": (lambda x, y: (x.t() + y).argmax(-1), crossed),
    "loops: standardised columns": (standardised, one),
    "loops: standardised columns bfloat16": (standardised, half),
    "loops: standardised columns float64": (standardised, lambda r, c: (matrix(r, c, **DOUBLE),)),
    "loops: centred columns": (lambda x: x - x.mean(0), one),
    "loops: scaled columns": (lambda x: (x - x.amin(0)) / (x.amax(0) - x.amin(0) + 1e-5), one),
    "cat": (lambda a, b: torch.cat([a * 2, b + 1], -1), pair),
    "pad": (lambda x: F.pad(x, (1, 1, 1, 1)) * 2, image),
    "max pool": (lambda x: F.max_pool2d(x, 2), image),
    "avg pool": (lambda x: F.avg_pool2d(x, 3, 1, 1), image),
    "max pool backward": (gradient(lambda x: F.max_pool2d(x, 3, 2, 1)), image),
    "upsample nearest": (lambda x: F.interpolate(x, scale_factor=2), image),
    "upsample bilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), image),
}


def graph_of(function, inputs, table):
    def flat(*args):
        return tuple(pytree.tree_leaves([function(*args)]))

    raw = make_fx(flat, tracing_mode="fake")(*inputs)
    functional = torch.func.functionalize(raw, remove="mutations")
    return make_fx(functional, decomposition_table=table, tracing_mode="fake")(*inputs)


def ours(function, inputs):
    graph = graph_of(function, inputs, fi.decompositions())
    compiled = fi.compile_graph(graph, inputs, inference=True, check_arguments=False)
    return lambda: compiled(*inputs)


def theirs(function, inputs):
    graph = graph_of(function, inputs, select_decomp_table())
    # As in torch.compile, results keep eager's strides.
    record_original_output_strides(graph)
    results = graph.graph.output_node()
    results.meta["user_visible_output_idxs"] = list(range(len(results.args[0])))
    mode = FakeTensorMode()
    for node in graph.graph.nodes:
        if isinstance(node.meta.get("val"), torch.Tensor):
            mode = node.meta["val"].fake_mode
            break
    with torch._guards.tracing(torch._guards.TracingContext(mode)), torch.no_grad():
        fakes = [mode.from_tensor(x) for x in inputs]
        compiled = compile_fx_inner(graph, fakes)

    def call():
        with torch._C._AutoDispatchBelowAutograd():
            return compiled(list(inputs))

    return call


def eager(function, inputs):
    return lambda: function(*inputs)


def timed(call, clock, seconds):
    """Mean seconds of a call, over about ``seconds``."""
    start = clock()
    call()
    once = max(clock() - start, 1e-6)
    count = max(1, min(2000, int(seconds / once)))
    start = clock()
    for _ in range(count):
        call()
    return (clock() - start) / count


def same(got, want):
    """Whether results are eager's but for rounding; eager rounds each term of a sum that a fused kernel does not round."""
    pairs = zip(pytree.tree_leaves(list(got)), pytree.tree_leaves([want]), strict=True)
    return all(close(g.double(), w.double()) for g, w in pairs)


def close(got, want):
    typical = want[want.isfinite()].abs().mean().nan_to_num(0).item()
    return torch.allclose(got, want, 2e-2, 2e-2 * max(1.0, typical), equal_nan=True)


def measure(name, size, args):
    function, make = KERNELS[name]
    torch.manual_seed(0)
    inputs = make(*(SIZES.get(size) or map(int, size.split("x"))))
    calls = {"ours": ours(function, inputs), "eager": eager(function, inputs)}
    if args.torch:
        calls["torch"] = theirs(function, inputs)
    want = function(*inputs)
    if not same(calls["ours"](), want):
        raise AssertionError(f"{name} at {size} differs from eager")
    clock = time.thread_time if args.threads == 1 else time.perf_counter
    rounds = {who: [] for who in calls}
    for _ in range(args.rounds):
        for who, call in calls.items():
            rounds[who].append(timed(call, clock, args.seconds))
    moved = sum(t.numel() * t.element_size() for t in [*inputs, *pytree.tree_leaves(want)])
    return {who: statistics.median(r) for who, r in rounds.items()}, moved


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--sizes", default="small,middle,large")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.02)
    parser.add_argument("--no-torch", dest="torch", action="store_false")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    ratios = {"torch": [], "eager": []}
    table = Table("kernel", "size", "fxstack us", "eager/fxstack", "torch.compile/fxstack", "GB/s")
    for name in KERNELS:
        if not re.search(args.only, name):
            continue
        for size in args.sizes.split(","):
            times, moved = measure(name, size, args)
            mine = times.pop("ours")
            for who, seconds in times.items():
                ratios[who].append(seconds / mine)
            beside = [f"{times[w] / mine:.2f}" if w in times else "" for w in ("eager", "torch")]
            table.row(name, size, f"{mine * 1e6:.1f}", *beside, f"{moved / mine / 1e9:.1f}")
    for who, values in ratios.items():
        if values:
            mean = math.exp(statistics.fmean(map(math.log, values)))
            print(f"\n{who}/fxstack: geometric mean {mean:.2f} over {len(values)}, worst {min(values):.2f}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = [
            "--only",
            "add",
            "--sizes",
            "small",
            "--rounds",
            "1",
            "--seconds",
            "0.001",
            "--no-torch",
        ]
    sys.exit(main())
