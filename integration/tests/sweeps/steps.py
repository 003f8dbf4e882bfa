"""Training steps of the models with several numbers of threads, many times each, against eager.

    python integration/tests/sweeps/steps.py [MODEL ...] [--threads 1,2,3,8] [--runs 100] [--dry]

Every gradient must be as near to that of float64 as eager's is, up to ``--factor``, in every run. Prints for each model and
number of threads how many runs were not, the worst ratio, and whether all runs have the same bits; exits 1 on a difference.
"""

from __future__ import annotations

import argparse
import copy
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import torch  # noqa: E402
import transformers  # noqa: E402
import zoo  # noqa: E402 - found through the path above

import fxstack  # noqa: E402

ROUNDING = 32 * torch.finfo(torch.float32).eps
"""Of the largest element of a gradient: what no compiler answers for."""


def arguments(given):
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=["swin", *zoo.CASES])
    parser.add_argument("--threads", default="1,2,3,8")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--factor", type=float, default=8.0)
    parser.add_argument("--dry", action="store_true", help="one model, two runs")
    options = parser.parse_args(given)
    if options.dry:
        options.models, options.runs, options.threads = options.models[:1], 2, "1,3"
    return options


def swin(_size):
    """Windows of heads: gradients are written in pieces of 16 floats that alternate in memory."""
    config = transformers.SwinConfig(
        image_size=64,
        patch_size=4,
        embed_dim=32,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
        drop_path_rate=0.0,
    )
    loss = lambda model, batch: model(**batch).last_hidden_state.square().mean()  # noqa: E731
    batch = {"pixel_values": torch.randn(2, 3, 64, 64)}
    return zoo.Case("swin", transformers.SwinModel(config), batch, loss)


def gradients(case, model, original):
    """All gradients of one training step with the generator seeded."""
    torch.manual_seed(1)
    original.zero_grad()
    case.loss(model, case.batch).backward()
    return {n: p.grad.clone() for n, p in original.named_parameters() if p.grad is not None}


def in_double(case):
    """The gradients in float64; None for a model that draws random numbers."""
    model = copy.deepcopy(case.model).double()
    batch = {
        name: v.double() if torch.is_tensor(v) and v.is_floating_point() else v
        for name, v in case.batch.items()
    }
    return gradients(zoo.Case(case.name, model, batch, case.loss), model, model)


def distances(found, exact):
    return {n: (g.double() - exact[n]).abs().max().item() for n, g in found.items()}


def check(name, options):
    """(threads, runs that differ, worst ratio, whether all bits are the same) for each number of threads."""
    torch.manual_seed(0)
    case = swin(zoo.TINY) if name == "swin" else zoo.CASES[name](zoo.TINY)
    for part in case.model.modules():
        if isinstance(part, torch.nn.modules.dropout._DropoutNd):
            part.p = 0.0  # masks are drawn for a dtype
    case.model.train()
    exact = in_double(case)
    compiled = fxstack.compile(case.model)
    for threads in map(int, options.threads.split(",")):
        torch.set_num_threads(threads)
        eager = distances(gradients(case, case.model, case.model), exact)
        limits = {
            n: options.factor * error + ROUNDING * exact[n].abs().max().item() for n, error in eager.items()
        }
        wrong, worst, first, same = 0, 0.0, None, True
        for _ in range(options.runs):
            got = gradients(case, compiled, case.model)
            assert got.keys() == exact.keys()
            ratios = [d / max(limits[n], 1e-30) for n, d in distances(got, exact).items()]
            wrong += max(ratios) > 1
            worst = max(worst, *ratios)
            first = first or got
            same = same and all(map(torch.equal, got.values(), first.values()))
        yield threads, wrong, worst, same
    assert not fxstack.compile_log(compiled).failure_count


def main(given=None):
    options = arguments(given)
    warnings.simplefilter("ignore")
    bad = 0
    for name in options.models:
        for threads, wrong, worst, same in check(name, options):
            bad += bool(wrong)
            bits = "the same bits in all" if same else "bits differ between runs"
            print(
                f"{name:9} {threads} threads: {wrong} of {options.runs} runs differ, "
                f"worst error {worst:.2f} of the limit, {bits}",
                flush=True,
            )
        fxstack.reset()
    print(f"{bad} of {len(options.models)} models by threads differ")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
