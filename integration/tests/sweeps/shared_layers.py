"""Random stacks of layers with shared regions and without, bit by bit: results, gradients, buffers, strides, random numbers.

    python integration/tests/sweeps/shared_layers.py [--start 0] [--count 100] [--backend inductor] [--dry]

The layers of a stack have the same steps and weights of their own; some are tied, frozen, or get an input that others lack.
Prints the seeds that differ, and how many stacks shared a part.
"""

import argparse
import random
import sys
import warnings
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import test_regions
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the customary name

import fxstack

warnings.filterwarnings("ignore")
SIZE = test_regions.SIZE = 64
"""The features: sums of rows of 64 numbers have one order in any kernel, so that more parts are shared than with 16."""


class Feed(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.up, self.down, self.activation = nn.Linear(SIZE, 2 * SIZE), nn.Linear(2 * SIZE, SIZE), activation

    def forward(self, x):
        return x + self.down(self.activation(self.up(x)))


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.value = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE, bias=False)

    def forward(self, x):
        return x * 0.5 + F.silu(self.gate(x)) * self.value(x)


class Twice(nn.Module):
    """A matrix that is used twice, so that its gradient is a sum."""

    def __init__(self):
        super().__init__()
        self.once = nn.Linear(SIZE, SIZE)

    def forward(self, x):
        return self.once(self.once(x).tanh()) + x


class Attention(nn.Module):
    """Attention over the rows of the batch, written out or by the fused function."""

    def __init__(self, fused):
        super().__init__()
        self.qkv, self.fused = nn.Linear(SIZE, 3 * SIZE), fused

    def forward(self, x):
        q, k, v = (part.view(1, -1, 2, SIZE // 2).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = (q @ k.mT * 0.3).softmax(-1) @ v
        return x + y.transpose(1, 2).reshape(x.shape)


class Counted(nn.Module):
    """A layer that changes its buffers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(SIZE))

    def forward(self, x):
        self.count += 1
        self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return x - self.mean * 0.1


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(SIZE))

    def forward(self, x):
        return x.clone().mul_(self.scale).add_(1)


class Call(nn.Module):
    """A function without weights."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


STEPS = {
    "feed": lambda r: Feed(r.choice([F.gelu, F.relu, torch.tanh, F.silu])),
    "gated": lambda r: Gated(),
    "twice": lambda r: Twice(),
    "attention": lambda r: Attention(r.random() < 0.5),
    "counted": lambda r: Counted(),
    "scaled": lambda r: Scaled(),
    "norm": lambda r: r.choice([nn.LayerNorm, nn.RMSNorm, nn.BatchNorm1d])(SIZE),
    "dropout": lambda r: nn.Dropout(0.2),
    "center": lambda r: Call(lambda x: x - x.mean(0, keepdim=True)),
    "scan": lambda r: Call(lambda x: x.cumsum(-1) * 0.1),
    "moved": lambda r: Call(lambda x: torch.cat([x[:, 4:], x[:, :4]], -1).roll(1, 0)),
    "turned": lambda r: Call(lambda x: x.t().contiguous().sin().t()),
}
WEIGHTS = (6, 3, 1, 3, 0.5, 1, 4, 1, 0.3, 0.3, 0.3, 0.3)
"""How often each of ``STEPS`` is chosen. Most stacks consist of what sharing is for."""


class Stack(nn.Module):
    """Layers with the steps of a seed."""

    def __init__(self, seed):
        super().__init__()
        rng = random.Random(seed)
        # Long enough to be shared, and with a product at one end.
        steps = ["gated", *rng.choices([*STEPS], WEIGHTS, k=rng.randint(0, 2)), "feed"]
        choices = rng.random()
        layer = lambda: nn.Sequential(*(STEPS[step](random.Random(choices)) for step in steps))
        layers = [layer() for _ in range(rng.randint(5, 8))]
        if rng.random() < 0.3:
            layers.insert(rng.randrange(len(layers)), rng.choice(layers))  # tied
        if rng.random() < 0.3:
            rng.choice(layers).requires_grad_(False)
        self.layers, self.skip = nn.ModuleList(layers), rng.choice([0, 0, 2, 3])
        self.steps = steps

    def forward(self, x):
        first = x
        for k, layer in enumerate(self.layers):
            x = layer(x)
            if self.skip and k % self.skip == 1:
                x = x + first
        return x


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--dry", action="store_true")
    args = parser.parse_args()
    if args.dry:
        args.count, args.backend = 2, "aot_eager"
    torch.set_num_threads(1)
    differ = shared = 0
    refusals = Counter()
    for seed in range(args.start, args.start + args.count):
        rng = random.Random(-seed)
        options = {
            "dynamic": rng.choice([None, True]),
            "grad": rng.random() < 0.6,
            "sizes": (rng.choice([16, 16, 64]), 12),
        }
        try:
            regions = test_regions.check(lambda: Stack(seed), backend=args.backend, **options)  # noqa: B023 - called here
        except Exception as error:
            differ += 1
            print(
                f"{seed}: {Stack(seed).steps} {options}: {type(error).__name__}: {str(error)[:500]}",
                flush=True,
            )
            continue
        finally:
            fxstack.reset()
        shared += any(region.refusal is None for region in regions)
        if (seed - args.start) % 10 == 9:  # a run that is cut off has said something
            print(f"{seed - args.start + 1} stacks: {differ} differ, {shared} with shared parts", flush=True)
        refusals.update({region.refusal for region in regions} - {None})
    ran = f"{args.count} stacks from seed {args.start}, {args.backend}"
    print(f"{ran}: {differ} differ, {shared} with shared parts")
    for refusal, count in refusals.most_common():
        print(f"{count} not shared: {refusal}")


if __name__ == "__main__":
    main()
