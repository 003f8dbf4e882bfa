"""Run a program of this folder in a process of its own, under one of three systems, and count what was compiled.

    python integration/tests/libraries/run.py gpytorch_regression fxstack

``eager`` is plain torch: ``torch.compile`` returns what it is given, because torch's wrapper of a module changes what
programs do (transformers' ``Trainer`` asks for the name of the class). ``torch`` is torch's own compiler, and ``fxstack``
is what ``FXSTACK=1`` does in an installed product. The programs know nothing of this file. Their last line of output is a
JSON object with ``losses``, and with the seconds of the first and of a later step.
"""

import atexit
import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SYSTEMS = ("eager", "torch", "fxstack")
LIBRARIES = {
    "accelerate_by_name": "accelerate",
    "accelerate_plugin": "accelerate",
    "accelerate_regional": "accelerate",
    "diffusers_dit": "diffusers",
    "diffusers_flux_blocks": "diffusers",
    "diffusers_pipeline": "diffusers",
    "diffusers_unet": "diffusers",
    "func_ensemble": "torch",
    "gpytorch_regression": "gpytorch",
    "ignite_engine": "ignite",
    "kornia_augmentation": "kornia",
    "lightning_gan": "lightning",
    "lightning_module": "lightning",
    "lightning_step": "lightning",
    "litgpt_generate": "torch",
    "peft_lora": "peft",
    "pyg_gat": "torch_geometric",
    "pyg_gcn": "torch_geometric",
    "pyg_gin": "torch_geometric",
    "skorch_classifier": "skorch",
    "tensordict_module": "tensordict",
    "tensordict_policy": "tensordict",
    "torchao_adam8bit": "torchao",
    "torchao_weight_only": "torchao",
    "torchdiffeq_odeint": "torchdiffeq",
    "torchmetrics_accuracy": "torchmetrics",
    "torchtune_layers": "torch",
    "transformers_flex_attention": "transformers",
    "transformers_generate": "transformers",
    "transformers_mamba": "transformers",
    "transformers_mixtral": "transformers",
    "transformers_static_cache": "transformers",
    "transformers_trainer_bert": "transformers",
    "transformers_trainer_gpt2": "transformers",
    "transformers_trainer_smoothing": "transformers",
    "vllm_backend": "torch",
    "x_transformers_decoder": "x_transformers",
}
"""The programs, each with the module that it needs."""
COUNTS = "LIBRARIES_COUNTS"
"""The environment variable with the file that gets the counts of the child process."""
SECONDS = 600


def run(program, system, caches=None):
    """What the program prints, with ``graphs``, ``breaks``, ``reasons``, ``failures`` and ``messages`` (of fxstack).

    Files that a compiler stores go to the folder ``caches``; without it they are not kept.
    """
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts.json"
        command = [sys.executable, __file__, program, system]
        environment = _environment(system, Path(caches or folder), counts)
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
        )
        if done.returncode:
            raise RuntimeError(f"{program} under {system}: status {done.returncode}\n{done.stderr[-6000:]}")
        result = json.loads(done.stdout.strip().splitlines()[-1])
        messages = [line for line in done.stderr.splitlines() if "fxstack" in line.lower()]
        return {**result, **json.loads(counts.read_text()), "messages": messages}


def _environment(system, caches, counts):
    left_out = {"FXSTACK", "FXSTACK_RAISE_FAILURES", "TRITON_INTERPRET", "TORCH_COMPILE_DISABLE"}
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    environment |= {
        COUNTS: str(counts),
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "torch"),
        "FXSTACK_INDUCTOR_CACHE_DIR": str(caches / "fxstack"),
        "HF_HUB_OFFLINE": "1",
    }
    if system == "fxstack":
        environment["FXSTACK"] = "1"
    return environment


def child(program, system):
    """Run the program in this process; its counts are written when the process ends."""
    count = {"eager": _count_nothing, "torch": _count_torch, "fxstack": _count_fxstack}[system]()
    path = os.environ.get(COUNTS)
    if path:
        atexit.register(lambda: Path(path).write_text(json.dumps(count())))
    else:
        atexit.register(lambda: print(json.dumps(count(), indent=1)))
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]
    sys.argv = [str(HERE / f"{program}.py")]
    runpy.run_path(sys.argv[0], run_name="__main__")


def _count_nothing():
    import torch

    torch.compile = lambda model=None, **_options: (lambda fn: fn) if model is None else model
    return lambda: {"graphs": 0, "breaks": 0, "reasons": [], "failures": []}


def _count_torch():
    def count():
        import torch._dynamo.utils

        counters = torch._dynamo.utils.counters
        breaks = counters["graph_break"]
        return {
            "graphs": counters["stats"]["unique_graphs"],
            "breaks": sum(breaks.values()),
            "reasons": [reason.splitlines()[0] for reason in breaks],
            "failures": [],
        }

    return count


def _count_fxstack():
    """Count over the logs of all compiled callables of the process, which nothing in the product keeps together."""
    importlib.import_module("fxstack_startup").start()  # what fxstack.pth does, if fxstack is not installed
    importlib.import_module("torch")
    from fxstack.log import CompileLog

    graphs, breaks, failures = [], [], []
    _tell_before(CompileLog, "next_graph", lambda: graphs.append(1))
    _tell_before(CompileLog, "on_break", breaks.append)
    _tell_before(CompileLog, "on_failure", lambda _graph, failure: failures.append(failure))

    def count():
        return {
            "graphs": len(graphs),
            "breaks": len(breaks),
            "reasons": [_described(record) for record in breaks],
            "failures": [failure.message for failure in failures],
        }

    return count


def _tell_before(of, name, told):
    original = getattr(of, name)

    def method(self, *args):
        told(*args)
        return original(self, *args)

    setattr(of, name, method)


def _described(record):
    file, line, name = record.stack[-1] if record.stack else ("?", 0, "?")
    return f"[{record.reason.id}] {record.detail} ({file}:{line} in {name})"


if __name__ == "__main__":
    child(*sys.argv[1:])
