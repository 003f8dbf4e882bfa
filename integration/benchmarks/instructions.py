"""Work of a compilation and of a step as counts, which a busy machine does not change: this tree beside another.

    python instructions.py [--against CHECKOUT] [--models bert gpt2 ...] [--dry] [--markdown]

For every model, in a process for each tree, after a first run that warms the caches in memory:

- instructions: bytecode instructions that Python executes while the graphs of a training step compile;
- calls: calls of Python and C functions in one compiled training step;
- kernels: the C files that inductor writes, and how many of them the other tree writes byte for byte.

``CHECKOUT`` is another checkout of this repository with its C extension built in place. Counts repeat to about
one in a thousand, where times on a shared machine repeat to one in ten.
"""

from __future__ import annotations

import argparse
import cProfile
import hashlib
import json
import os
import pstats
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "testing"))

from result_tables import Table

HERE = Path(__file__).resolve().parents[2]
MODELS = ("mlp", "gpt2", "llama", "bert", "vit", "resnet")


class InstructionCounter:
    """Count the bytecode instructions of compilations.

    The frame hook suspends trace functions while it compiles. Therefore each compilation runs in a thread of
    its own, which has a trace function.
    """

    def __init__(self) -> None:
        from fxstack_capture.driver.compiler import FrameCompiler

        self.count = 0
        self.is_on = False
        compile_frame = FrameCompiler._compile

        def counted(*args: Any) -> Any:
            if not self.is_on:
                return compile_frame(*args)
            results: list[Any] = []
            thread = threading.Thread(target=self._run, args=(results, compile_frame, args))
            thread.start()
            thread.join()
            return results[0]

        FrameCompiler._compile = counted

    def _run(self, results: list[Any], function: Any, args: tuple[Any, ...]) -> None:
        sys.settrace(self._trace)
        try:
            results.append(function(*args))
        finally:
            sys.settrace(None)

    def _trace(self, frame: Any, event: str, _argument: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.count += event == "opcode"
        return self._trace


def measure(name: str, cache: Path) -> dict[str, Any]:
    """Return the counts of one model in this process."""
    import torch
    import zoo

    import fxstack

    torch.set_num_threads(1)
    counter = InstructionCounter()

    def step(case: Any, model: Any) -> None:
        case.loss(model, case.batch).backward()
        case.model.zero_grad(set_to_none=True)

    for is_counted in (False, True):
        fxstack.reset()
        case = zoo.build(name, "tiny")
        # The first compilation fills the empty cache with C files; the counted one must not read the cache.
        model = fxstack.compile(case.model, options={"use_cache": not is_counted})
        counter.is_on = is_counted
        step(case, model)
        counter.is_on = False
    step(case, model)
    profile = cProfile.Profile()
    profile.runcall(step, case, model)
    calls = sum(entry[1] for entry in pstats.Stats(profile).stats.values())
    kernels = sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in cache.rglob("*.c"))
    return {"instructions": counter.count, "calls": calls, "kernels": kernels}


def run(tree: Path, name: str) -> dict[str, Any]:
    """Measure one model with the sources of ``tree`` in a process with an empty cache."""
    sources = [*sorted(tree.glob("packages/*/src")), tree / "integration" / "src"]
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, [*sources, HERE / "testing"])),
            "FXSTACK_INDUCTOR_CACHE_DIR": cache,
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, __file__, "--worker", name, cache]
        worker = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        return json.loads(worker.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--against", type=Path, help="another checkout, with its C extension built in place")
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--dry", action="store_true", help="one small model")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(measure(options.worker[0], Path(options.worker[1]))))
        return
    table = Table(
        "model", "instructions", "ratio", "calls a step", "ratio of calls", "kernels", "equal kernels"
    )
    for name in MODELS[:1] if options.dry else options.models:
        this = run(HERE, name)
        other = run(options.against.resolve(), name) if options.against else this
        table.row(
            name,
            f"{this['instructions']:,}",
            f"{this['instructions'] / other['instructions']:.3f}",
            this["calls"],
            f"{this['calls'] / other['calls']:.3f}",
            len(this["kernels"]),
            len(set(this["kernels"]) & set(other["kernels"])),
        )


if __name__ == "__main__":
    main()
