"""Loops as operators (scan, while_loop, map), beside the same loops in plain Python and in torch.compile.

    python integration/benchmarks/loops.py [--dry] [--markdown] [NAME ...]

Milliseconds of a call, medians of interleaved rounds. "Plain" is a Python loop over eager tensors; training includes the
backward. The last two columns are plain / fxstack and torch.compile / fxstack: above 1, fxstack is faster.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "testing"))
import torch
import torch._dynamo
from result_tables import Table
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as map_over

import fxstack

ROUNDS, SHORTEST, WARM_UP = 15, 0.05, 40


def smooth(c, x):
    c = torch.tanh(c * 0.9 + x)
    return c, c * 2 + 1


def newton(x, a):
    return 0.5 * (x + a / x)


def attend(x, w):
    return torch.softmax((x @ w).relu(), -1)


def gru(h, x, wi, wh, b):
    r, z, n = (x @ wi + b).chunk(3, -1)
    hr, hz, hn = (h @ wh).chunk(3, -1)
    r, z = torch.sigmoid(r + hr), torch.sigmoid(z + hz)
    h = (1 - z) * torch.tanh(n + r * hn) + z * h
    return h, h + 0


def select(h, inputs, a):
    u, delta, b, c = inputs
    h = torch.exp(delta[..., None] * a) * h + (delta * u)[..., None] * b[:, None, :]
    return h, (h * c[:, None, :]).sum(-1)


def search(step, tokens, scores, embedding, w):
    last = tokens.gather(1, step.expand(tokens.shape[0], 1)).squeeze(1)
    scored = torch.log_softmax(torch.tanh(embedding[last]) @ w, -1) + scores[:, None]
    best, places = scored.flatten().topk(scores.shape[0])
    tokens = tokens[places // scored.shape[1]]
    position = (step + 1).expand(tokens.shape[0], 1)
    return step + 1, tokens.scatter(1, position, (places % scored.shape[1])[:, None]), best


def scanned(fn, by_operator, init, xs):
    """The loop of ``fn`` over slices: the operator, or plain Python."""
    if by_operator:
        return scan(fn, init, xs)
    results = []
    for k in range(len(xs[0]) if isinstance(xs, tuple) else len(xs)):
        init, y = fn(init, tuple(x[k] for x in xs) if isinstance(xs, tuple) else xs[k])
        results.append(y)
    return init, torch.stack(results)


def scan_smooth(by_operator, x, xs):
    return scanned(smooth, by_operator, x, xs)


def while_of(length):
    def loop(by_operator, x, a):
        if by_operator:
            zero = torch.zeros((), dtype=torch.int64)
            return while_loop(lambda i, _: i < length, lambda i, x: (i + 1, newton(x, a)), (zero, x))[1]
        i = torch.zeros((), dtype=torch.int64)
        while i < length:
            i, x = i + 1, newton(x, a)
        return x

    return loop


def map_attend(by_operator, xs, w):
    if by_operator:
        return map_over(attend, xs, w)
    return torch.stack([attend(xs[k], w) for k in range(len(xs))])


def train_gru(by_operator, h, xs, *weights):
    _, ys = scanned(lambda h, x: gru(h, x, *weights), by_operator, h, xs)
    return ys.square().mean()


def selective(by_operator, h, a, *inputs):
    return scanned(lambda h, x: select(h, x, a), by_operator, h, inputs)


def beam_of(length):
    def loop(by_operator, tokens, scores, *weights):
        step = torch.zeros((1, 1), dtype=torch.int64)
        if by_operator:
            return while_loop(
                lambda step, *_: (step < length).squeeze(),
                lambda *state: search(*state, *weights),
                (step, tokens, scores),
            )[1:]
        while step < length:
            step, tokens, scores = search(step, tokens, scores, *weights)
        return tokens, scores

    return loop


def workloads(dry):
    """The loops: name, function of ``by_operator`` and the inputs, the inputs, and whether to train."""

    def n(full):
        return 4 if dry else full

    weights = [torch.randn(32, 96) * 0.1, torch.randn(32, 96) * 0.1, torch.zeros(96)]
    length = n(256)
    mamba = [torch.zeros(2, 64, 16), -torch.rand(64, 16), torch.randn(length, 2, 64)]
    mamba += [torch.rand(length, 2, 64) * 0.1, torch.randn(length, 2, 16), torch.randn(length, 2, 16)]
    beams = [torch.zeros(4, n(60) + 1, dtype=torch.int64), torch.zeros(4)]
    return {
        "scan, 600 steps": (scan_smooth, [torch.randn(8, 32), torch.randn(n(600), 8, 32)], False),
        "while_loop, 1,000 steps": (while_of(n(1000)), [torch.rand(64) + 1, torch.rand(64) + 1], False),
        "map, 500 slices": (map_attend, [torch.randn(n(500), 8, 32), torch.randn(32, 32)], False),
        "GRU cell in training, 500 steps": (
            train_gru,
            [torch.zeros(8, 32), torch.randn(n(500), 8, 32), *weights],
            True,
        ),
        "selective scan, 256 steps": (selective, mamba, False),
        "beam search, 60 steps": (
            beam_of(n(60)),
            [*beams, torch.randn(500, 64), torch.randn(64, 500)],
            False,
        ),
    }


def calls_of(fn, inputs, train):
    """A call of the plain loop, of torch.compile and of fxstack."""
    inputs = [x.requires_grad_(train and x.is_floating_point()) for x in inputs]
    torch.compiler.reset()
    compilers = (lambda f: f, torch.compile, fxstack.compile)
    for by_operator, compiler in zip((False, True, True), compilers, strict=True):
        compiled = compiler(lambda *args, by=by_operator: fn(by, *args))

        def call(compiled=compiled):
            result = compiled(*inputs)
            if train:
                return torch.autograd.grad(result, [x for x in inputs if x.requires_grad])
            return result

        yield call


def assert_alike(results):
    expected, *others = (torch.utils._pytree.tree_leaves(result) for result in results)
    for other in others:
        torch.testing.assert_close(other, expected, rtol=1e-3, atol=1e-4)


def seconds(call):
    """The time of one call, from as many as take long enough."""
    count, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < SHORTEST or not count:
        call()
        count += 1
    return elapsed / count


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="only loops whose names begin so")
    parser.add_argument("--dry", action="store_true", help="few steps, one round, no calls before")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch._dynamo.config.capture_scalar_outputs = True  # torch.compile fails on scan without it
    chosen = workloads(options.dry)
    if options.names:
        chosen = {k: v for k, v in chosen.items() if k.startswith(tuple(options.names))}
    table = Table(
        "loop", "plain ms", "torch.compile ms", "fxstack ms", "plain / fxstack", "torch.compile / fxstack"
    )
    for name, (fn, inputs, train) in chosen.items():
        calls = list(calls_of(fn, inputs, train))
        assert_alike([call() for call in calls])
        for _ in range(0 if options.dry else WARM_UP):  # fxstack compares some of its first calls with eager
            for call in calls[1:]:
                call()
        rounds = [[seconds(call) for call in calls] for _ in range(1 if options.dry else ROUNDS)]
        plain, torch_s, own = (statistics.median(column) * 1e3 for column in zip(*rounds, strict=True))
        table.row(
            name, f"{plain:.2f}", f"{torch_s:.2f}", f"{own:.3f}", f"{plain / own:.1f}", f"{torch_s / own:.1f}"
        )


if __name__ == "__main__":
    main()
