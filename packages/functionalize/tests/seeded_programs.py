"""Programs made from a seed: views, in-place operators, outputs and aliases over a few inputs."""

import random

from compare import as_graph, check
from helpers import run_graph, save_everything
from programs import ALL_OPS, GAPPED, INPUTS, MODES, OPS, SHARED, make_input, run_program, share_inputs

from fxstack_functionalize import UnsupportedGraphError, aot

FIRST_WITH_LAYOUTS = 900_000
"""Programs of these seeds also change size, strides and history in place."""
FIRST_WITH_GAPS = 9_400_000
"""Programs of these seeds also have inputs between whose elements there are others."""


def program_of(seed):
    """Return (input kinds, which of them share memory, steps, outputs)."""
    rng = random.Random(seed)
    ops = ALL_OPS if seed >= FIRST_WITH_LAYOUTS else OPS
    inputs = INPUTS + GAPPED if seed >= FIRST_WITH_GAPS else INPUTS
    kinds = [rng.choice(inputs) for _ in range(rng.randint(1, 3))]
    shared = rng.choice(SHARED) if len(kinds) > 1 and rng.random() < 0.25 else None
    steps = [
        (rng.choice(ops), rng.randrange(99), rng.randrange(99), rng.choice(MODES))
        for _ in range(rng.randint(1, 6))
    ]
    outputs = [rng.randrange(99) for _ in range(rng.randint(1, 3))]
    return kinds, shared, steps, outputs


def run_seed(seed):
    """Compare one program. Returns what came out: equal, refused, or eager raises."""
    kinds, shared, steps, outputs = program_of(seed)

    def make():
        inputs = tuple(make_input(kind, number) for number, kind in enumerate(kinds))
        return share_inputs(inputs, shared)

    def program(*inputs):
        return run_program(steps, outputs, inputs)

    try:
        program(*make())
    except (RuntimeError, IndexError) as error:
        return _refused(program, make, error)
    try:
        check(program, make, calls=1, tol=1e-5)
    except UnsupportedGraphError as error:
        return f"refused: {error.what.split(' (')[0]}"
    return "equal"


def _refused(program, make, error):
    """What eager refuses may not come out of the compiler as a value."""
    if "more than one element" in str(error):  # overlap.py looks at captured nodes, here is but one
        return "eager raises"
    inputs = make()
    try:
        aot(as_graph(program, len(inputs)), inputs, fw_compiler=run_graph, partitioner=save_everything)(
            *inputs
        )
    except (RuntimeError, IndexError):
        return "eager raises"
    raise AssertionError(f"eager raises {type(error).__name__}: {error}; ahead of time does not")
