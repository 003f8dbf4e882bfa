"""torch's database of operators: forward and backward, eager against ahead-of-time.

    python sweeps/operators.py [samples per operator and dtype] [every n-th operator] [dtype ...] [dynamic]

``dynamic`` compiles for symbolic sizes.

Prints what differs and what is refused, then a summary for each dtype.
"""

import itertools
import logging
import sys
import traceback
import warnings
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.testing._internal.common_methods_invocations as invocations
from compare import check, dynamic, sample_program
from torch.testing._internal.common_methods_invocations import op_db

from fxstack_functionalize import UnsupportedGraphError

DTYPES = ("float32", "float64", "bfloat16", "int64", "bool", "complex64")
TOLERANCE = {torch.bfloat16: 2e-2, torch.float32: 1e-5, torch.complex64: 1e-5}
UNDEFINED = ("empty", "jiterator", "broadcast_shapes", "uninitialized")
"""Their values are whatever is in memory, or they take no tensors."""


def unseeded(op, *args, **kwargs):
    """The database's random operators set the seed inside, which no graph records; ``check`` sets it before the call."""
    return op(*args, **kwargs)


def run_sample(op, dtype, sample, examples):
    """Return ``equal``, ``eager raises``, or the text of a refusal; raise where there is a difference."""
    program, make = sample_program(op, sample)
    tol = TOLERANCE.get(dtype, 1e-9)
    try:
        program(*make())
    except Exception:
        return "eager raises"
    try:
        check(program, make, calls=1, poke=False, tol=tol, examples=examples)
    except UnsupportedGraphError as error:
        return f"refused: {error.what.splitlines()[0][:110]}"
    return "equal"


def run_dtype(dtype, samples, chosen, examples):
    seen = Counter()
    for op in chosen:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        name = f"{op.name} {op.variant_test_name}".strip()
        grad = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
        try:
            torch.manual_seed(0)
            for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=grad), samples):
                what = run_sample(op, dtype, sample, examples)
                seen[what.split(":")[0]] += 1
                if what not in ("equal", "eager raises"):
                    print(f"  {dtype} {name}: {what}", flush=True)
        except Exception as error:
            seen["differs"] += 1
            text = traceback.format_exception_only(error)[-1].strip().replace("\n", " ")
            print(f"  {dtype} {name}: DIFFERS {text[:250]}", flush=True)
    print(f"{dtype}: {dict(seen)}", flush=True)


def main(samples="1", every="1", *dtypes):
    warnings.simplefilter("ignore")
    logging.disable()
    invocations.wrapper_set_seed = unseeded
    chosen = [op for op in op_db if not any(word in op.name for word in UNDEFINED)][:: int(every)]
    examples = dynamic if "dynamic" in dtypes else list
    for name in [name for name in dtypes if name != "dynamic"] or DTYPES:
        run_dtype(getattr(torch, name), int(samples), chosen, examples)


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["1", "200", "float32"]
    main(*sys.argv[1:])
