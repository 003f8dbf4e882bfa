"""torch's module database through capture: two calls and a backward, the graphs run as they are.

python packages/capture/tests/sweeps/modules.py [--samples 4] [--only LSTM] [--verbose]
"""

from __future__ import annotations

import argparse
import copy
import itertools
import sys

import torch
from beside import Tally, captured, clones, difference, seeded
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_leaves


def use(module, call, sample, training: bool) -> list:
    """Two calls, a backward, and everything that they leave behind."""
    inputs = sample.forward_input
    outputs = [call(*clones(inputs.args), **clones(inputs.kwargs)) for _ in range(2)]
    if training:
        sums = [o.sum() for o in tree_leaves(outputs) if isinstance(o, torch.Tensor) and o.requires_grad]
        if sums:
            sum(s.abs() for s in sums).backward()
    grads = {name: p.grad for name, p in module.named_parameters()}
    return [outputs, dict(module.named_buffers()), grads]


def try_sample(info, sample, training: bool, tally: Tally, name: str) -> None:
    constructor = sample.constructor_input
    torch.manual_seed(1)
    module = info.module_cls(*constructor.args, **constructor.kwargs).train(training)
    alternate = copy.deepcopy(module)
    expected = seeded(lambda: use(module, module, sample, training))
    compiled, seen = captured(alternate)
    found = seeded(lambda: use(alternate, compiled, sample, training))
    tally.add(name, difference(found, expected, 1.3e-6, 1e-5), seen)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--only")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    tally = Tally(options.verbose)
    for info in module_db:
        if options.only and options.only not in info.name:
            continue
        for training in (False, True):
            made = info.module_inputs_func(
                info, device="cpu", dtype=torch.float32, requires_grad=training, training=training
            )
            for number, sample in enumerate(itertools.islice(made, options.samples)):
                try_sample(info, sample, training, tally, f"{info.name} {training} {number}")
    return tally.report()


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["--samples", "1", "--only", "Linear"]
    sys.exit(main())
