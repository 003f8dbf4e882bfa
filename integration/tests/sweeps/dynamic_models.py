"""Models with batch and sequence length varied over ten values: how many compilations, and whether all are exact.

    python integration/tests/sweeps/dynamic_models.py [MODEL ...]

Captured with the backend that runs the graph as it is, so that outputs equal eager's bit for bit where capture
is right. A model should need two graphs a frame: the static one and the dynamic one.
"""

from __future__ import annotations

import copy
import sys
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / "integration/benchmarks"), str(ROOT / "packages/capture/tests/api")]

import torch  # noqa: E402
import zoo  # noqa: E402 - found through the path above
from counting import Counting  # noqa: E402 - likewise

import fxstack_capture  # noqa: E402

BATCHES = [2, 3, 4, 6, 5, 8, 7, 10, 9, 12]
LENGTHS = [9, 8, 10, 7, 6, 5, 9, 8, 7, 10]
TEXT = frozenset({"input_ids", "attention_mask", "labels", "decoder_input_ids"})


def resized(batch, rows, length):
    """The batch with ``rows`` rows, texts cut to ``length``; tensors without a batch dimension stay."""

    def change(name, value):
        if not isinstance(value, torch.Tensor) or value.dim() == 0:
            return value
        repeats = -(-rows // value.size(0))
        value = value.repeat(repeats, *[1] * (value.dim() - 1))[:rows]
        return (value[:, :length] if name in TEXT and value.dim() == 2 else value).contiguous()

    return {name: change(name, value) for name, value in batch.items()}


def flat(output):
    values = output.values() if isinstance(output, dict) else output
    values = [values] if isinstance(values, torch.Tensor) else list(values)
    return [v for v in values if isinstance(v, torch.Tensor)]


def check(name):
    """(graphs, sizes whose output differs from eager's)."""
    case = zoo.build(name)
    model = case.model.eval()
    backend = Counting()
    compiled = fxstack_capture.optimize(backend)(copy.deepcopy(model))
    wrong = []
    for rows, length in zip(BATCHES, LENGTHS, strict=True):
        batch = resized(case.batch, rows, length)
        with torch.no_grad():
            expected, found = flat(model(**batch)), flat(compiled(**batch))
        same = len(expected) == len(found) and all(map(torch.equal, expected, found))
        if not same:
            wrong.append((rows, length))
    return len(backend.graphs), wrong


def main(*names):
    warnings.simplefilter("ignore")
    bad = 0
    for name in names or zoo.CASES:
        started = time.perf_counter()
        try:
            graphs, wrong = check(name)
        except Exception as error:
            graphs, wrong = 0, f"{type(error).__name__}: {error}"[:200]
        bad += bool(wrong)
        seconds = time.perf_counter() - started
        print(f"{name:12} {graphs:3} graphs, differs at {wrong or 'no size'}, {seconds:.0f} s")
        fxstack_capture.reset()
    print(f"{bad} of {len(names or zoo.CASES)} models differ")
    return bad


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["mlp"]
    sys.exit(main(*sys.argv[1:]) > 0)
