"""Random programs whose results are differentiated one after the other: eager against ahead-of-time.

    python sweeps/sequential_backward.py [count] [first seed]

Program ``seed`` is that of ``random_programs.py`` with further operators and outputs. The gradients are compared after each
backward, errors by their first words. Prints every difference, then a summary.
"""

import logging
import random
import sys
import warnings
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from compare import compiled, roots_of, tensors
from programs import PURE, make_input, run_program, share_inputs
from seeded_programs import program_of

from fxstack_functionalize import UnsupportedGraphError


def differentiate(run, make, seed):
    """Return the leaves' gradients after each backward, up to an error; None if there are not two results to choose from."""
    rng = random.Random(seed)
    inputs = make()
    found = [t for t in tensors(run(*inputs)) if t.requires_grad and t.grad_fn is not None]
    results = list({id(t): t for t in found}.values())
    if len(results) < 2:
        return None
    order = rng.sample(range(len(results)), rng.randint(1, len(results)))
    retain, seen = rng.random() < 0.3, []
    leaves = [t for t in (*inputs, *roots_of(inputs)) if t.is_leaf]
    for number in order:
        grad = torch.full_like(results[number], 1.5)
        try:
            results[number].backward(grad, retain_graph=retain)
        except RuntimeError as error:
            return [*seen, str(error)[:60]]
        seen.append([None if leaf.grad is None else leaf.grad.clone() for leaf in leaves])
    return seen


def run_seed(seed):
    """Compare one program. Returns what came out."""
    kinds, shared, steps, _ = program_of(seed)
    rng = random.Random(-seed)
    steps += [(rng.choice([*PURE]), rng.randrange(99), rng.randrange(99), "grad") for _ in range(3)]
    outputs = [rng.randrange(99) for _ in range(4)]

    def make():
        made = tuple(make_input(kind, number) for number, kind in enumerate(kinds))
        return share_inputs(made, shared)

    def program(*inputs):
        return run_program(steps, outputs, inputs)

    try:
        eager = differentiate(program, make, seed)
    except (RuntimeError, IndexError):
        return "eager raises"
    if eager is None:
        return "fewer than two results"
    try:
        function = compiled(program, make())
    except UnsupportedGraphError:
        return "refused"
    ours = differentiate(function, make, seed)
    assert len(ours) == len(eager), (ours, eager)
    for mine, theirs in zip(ours, eager):
        if isinstance(mine, str) or isinstance(theirs, str):
            assert mine == theirs
        else:
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5, equal_nan=True)
    return "equal"


def main(count=300, first=0):
    warnings.simplefilter("ignore")
    logging.disable()
    seen = Counter()
    for seed in range(first, first + count):
        try:
            seen[run_seed(seed)] += 1
        except Exception as error:
            seen["different"] += 1
            print(f"seed {seed}: {type(error).__name__}: {str(error)[:200]}", flush=True)
    print(f"{count} programs from seed {first}: {dict(seen)}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["3"]
    main(*map(int, sys.argv[1:]))
