"""Run a program of this folder in a fresh process under eager torch, torch.compile or fxstack.

``python run.py child SYSTEM PROGRAM`` is the process itself. The program knows nothing of all this.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = sorted(path.stem for path in HERE.glob("*.py") if path.stem != "run")
COUNTS = "counts: "
LIBRARIES = {
    "diffusers_blocks": "diffusers",
    "geometric_gnn": "torch_geometric",
    "gpytorch_kernel": "gpytorch",
    "ignite_engine": "ignite",
    "kornia_pipeline": "kornia",
    "lightning_module": "lightning",
    "accelerate_plugin": "accelerate",
    "peft_lora": "peft",
    "skorch_net": "skorch",
    "tensordict_policy": "tensordict",
    "torchao_weights": "torchao",
    "torchdiffeq_ode": "torchdiffeq",
    "torchmetrics_loop": "torchmetrics",
    "transformers_trainer": "transformers",
    "transformers_generate": "transformers",
    "x_transformers_decoder": "x_transformers",
}
"""The library that a program needs; the others need torch alone."""


def run(program: str, system: str, timeout: float = 600) -> dict:
    """Return the program's results, the counts of graphs and breaks, and the warnings that name fxstack."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("FXSTACK", "TORCH_COMPILE_DISABLE")}
    variables = {"FXSTACK": "1"} if system == "fxstack" else {}
    done = subprocess.run(
        [sys.executable, str(HERE / "run.py"), "child", system, program],
        env={**inherited, **variables, "FXSTACK_RAISE_FAILURES": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    lines = done.stdout.splitlines()
    results = [json.loads(line) for line in lines if line.startswith('{"losses"')]
    counts = [json.loads(line.removeprefix(COUNTS)) for line in lines if line.startswith(COUNTS)]
    if done.returncode or not results or not counts:
        raise RuntimeError(f"{program} under {system} failed:\n{done.stderr[-4000:]}")
    said = [line for line in done.stderr.splitlines() if "fxstack" in line or "Uncompiled" in line]
    return {**results[0], **counts[0], "said": said, "stderr": done.stderr}


def _child(system: str, program: str) -> None:
    if system == "fxstack":
        import fxstack_startup

        fxstack_startup.start()  # as fxstack.pth does in an installation
    import torch

    if system == "eager":
        torch.compile = _left_alone
    count = _counting_fxstack() if system == "fxstack" else _count_of_torch
    runpy.run_path(str(HERE / f"{program}.py"), run_name="__main__")
    print(COUNTS + json.dumps(count()), flush=True)


def _left_alone(model=None, **_options):
    return model if model is not None else lambda fn: fn


def _counting_fxstack():
    from fxstack_capture.driver.compiler import FrameCompiler

    compilers = []
    original = FrameCompiler.__init__

    def remembering(self, *args, **kwargs):
        original(self, *args, **kwargs)
        compilers.append(self.tally)

    FrameCompiler.__init__ = remembering
    return lambda: {
        "graphs": sum(tally.graphs for tally in compilers),
        "breaks": sum(tally.breaks for tally in compilers),
    }


def _count_of_torch():
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return {"graphs": 0, "breaks": 0}
    graphs = utils.counters["stats"]["unique_graphs"]
    return {"graphs": graphs, "breaks": sum(utils.counters["graph_break"].values())}


if __name__ == "__main__" and sys.argv[1:2] == ["child"]:
    _child(*sys.argv[2:])
