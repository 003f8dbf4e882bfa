"""torch's optimizer database: ``step`` captured, beside eager's: parameters, state and groups after three steps.

python packages/capture/tests/sweeps/optimizers.py [--only Adam] [--verbose]
"""

from __future__ import annotations

import argparse
import copy
import sys

import torch
from beside import Tally, captured, difference, seeded
from torch.testing._internal.common_optimizers import optim_db

STEPS = 3


def train(info, kwargs, wrap) -> list:
    """What three steps leave of a small model; closures return the loss."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))
    parameters = list(model.parameters())
    if info.optim_cls.__name__ == "Muon":
        parameters = [p for p in parameters if p.dim() == 2]
    sparse = info.only_supports_sparse_grads
    optimizer = info.optim_cls(parameters, **kwargs)
    batch = torch.randn(5, 4)

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = model(batch).pow(2).sum()
        value.backward()
        if sparse:
            for parameter in parameters:
                parameter.grad = parameter.grad.to_sparse()
        return value

    step = wrap(optimizer.step)
    results = []
    for _ in range(STEPS):
        if info.step_requires_closure:
            results.append(step(loss))
        else:
            loss()
            results.append(step())
    state = [optimizer.state.get(p, {}) for p in parameters]
    groups = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    return [results, [p.detach() for p in parameters], state, groups]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    tally = Tally(options.verbose)
    for info in optim_db:
        if options.only and options.only != info.optim_cls.__name__:
            continue
        for config in info.optim_inputs_func(device="cpu"):
            for variant in (None, *info.supported_impls):
                if variant == "differentiable":  # no gradient flows through a step here
                    continue
                if variant == "fused" and "cpu" not in info.supports_fused_on:
                    continue
                kwargs = copy.deepcopy(config.kwargs)
                if variant:
                    kwargs[variant] = True
                name = f"{info.optim_cls.__name__} {config.desc} {variant or 'default'}"
                try_one(info, kwargs, tally, name)
    return tally.report()


def try_one(info, kwargs, tally: Tally, name: str) -> None:
    expected = seeded(lambda: train(info, copy.deepcopy(kwargs), lambda step: step))
    seen = []

    def wrap(step):
        compiled, observer = captured(step)
        seen.append(observer)
        return compiled

    found = seeded(lambda: train(info, copy.deepcopy(kwargs), wrap))
    if seen:
        tally.add(name, difference(found, expected), seen[0])


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["--only", "SGD"]
    sys.exit(main())
