"""torch's database of modules: training and evaluation, eager against ahead-of-time.

    python sweeps/modules.py [most samples of a module and mode]

Some have hundreds (TransformerEncoder), which takes the better part of an hour. What is refused is counted by its reason.
"""

import copy
import itertools
import logging
import sys
import traceback
import warnings
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from helpers import run_graph, save_everything
from torch.testing._internal.common_modules import module_db
from torch.utils import _pytree as pytree

from fxstack_functionalize import UnsupportedGraphError, aot_module


def results(module, args, kwargs, training):
    """Outputs, gradients of parameters and inputs, buffers afterwards, random state afterwards."""
    torch.manual_seed(0)
    outputs = module(*args, **kwargs)
    tensors = [t for t in pytree.tree_leaves(outputs) if isinstance(t, torch.Tensor)]
    roots = [t for t in tensors if t.requires_grad]
    if training and roots:
        torch.autograd.backward(roots, [torch.ones_like(t) for t in roots])
    inputs = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    grads = [t.grad for t in (*module.parameters(), *inputs)]
    return [t.detach() for t in tensors], grads, [*module.buffers()], torch.get_rng_state()


def compare(info, sample, training):
    torch.manual_seed(1)
    build, call = sample.constructor_input, sample.forward_input
    module = info.module_cls(*build.args, **build.kwargs)
    module.train(training)
    sides = []
    for wrap in (lambda m: m, lambda m: aot_module(m, fw_compiler=run_graph, partitioner=save_everything)):
        args, kwargs = pytree.tree_map_only(
            torch.Tensor,
            lambda t: t.detach().clone().requires_grad_(t.requires_grad),
            (call.args, call.kwargs),
        )
        try:
            sides.append(results(wrap(copy.deepcopy(module)), args, kwargs, training))
        except Exception:
            if not sides:
                return "eager raises"
            raise
    torch.testing.assert_close(*sides, rtol=1e-5, atol=1e-5, equal_nan=True)
    return "equal"


def main(most=None):
    warnings.simplefilter("ignore")
    logging.disable()
    seen, refused = Counter(), Counter()
    for info in module_db:
        for training in (True, False):
            samples = info.module_inputs_func(
                info, device="cpu", dtype=torch.float32, requires_grad=training, training=training
            )
            for sample in itertools.islice(samples, most):
                try:
                    seen[compare(info, sample, training)] += 1
                except UnsupportedGraphError as error:
                    seen["refused"] += 1
                    refused[f"{info.name}: {error.what.splitlines()[0][:150]}"] += 1
                except Exception as error:
                    seen["differs"] += 1
                    text = traceback.format_exception_only(error)[-1].strip().replace("\n", " ")
                    print(f"  {info.name} training={training}: DIFFERS {text[:200]}", flush=True)
    for reason, count in refused.items():
        print(f"  {count:4d} refused: {reason}")
    print(f"modules: {dict(seen)}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["1"]
        module_db = module_db[:2]
    main(*map(int, sys.argv[1:]))
