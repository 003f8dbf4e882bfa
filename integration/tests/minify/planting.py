"""Programs with a planted fault: a ``sitecustomize`` module on ``PYTHONPATH`` changes fxstack in every process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_LOWERING = """
import os, signal
import torch, fxstack
from fxstack_inductor.lower.rules import RULES
from fxstack_inductor.lower import passes
atan, tanh = torch.ops.aten.atan.default, torch.ops.aten.tanh.default
{rule}
passes.RULES = {{**RULES, atan: rule}}
"""

FAULTS = {
    "a wrong lowering": _LOWERING.format(rule="rule = RULES[tanh]"),
    "a crash of the compiler": _LOWERING.format(
        rule="rule = lambda *_: os.kill(os.getpid(), signal.SIGSEGV)"
    ),
    "an exception of the compiler": _LOWERING.format(
        rule="def rule(*_):\n    raise KeyError('no rule for atan')"
    ),
    "a wrong decomposition": """
import torch, fxstack
from fxstack import pipeline
right = pipeline.decompositions
pipeline.decompositions = lambda: {**right(), torch.ops.aten.logit.default: lambda x, eps=None: torch.log(x)}
""",
    "a wrong partition": """
import torch, fxstack
from fxstack import pipeline
right = pipeline.partition
def partition(joint, partitioner, options):
    parts = right(joint, partitioner, options)
    if partitioner == "min_cut":
        for node in parts.backward.graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.cos.default):
            node.target = torch.ops.aten.sin.default
        parts.backward.graph_module.recompile()
    return parts
pipeline.partition = partition
""",
    "wrong strides": """
import torch, fxstack
from fxstack import pipeline
right = pipeline.Compilation.ahead_of_time
def ahead_of_time(*arguments):
    made = right(*arguments)
    return lambda *inputs: [x.t().contiguous().t() for x in made(*inputs)]
pipeline.Compilation.ahead_of_time = ahead_of_time
""",
    "a fault of symbolic sizes": """
import torch, fxstack
from fxstack import pipeline
right = pipeline.compile_graph
def compile_graph(graph, inputs, *arguments, **options):
    for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default):
        if any(isinstance(n, torch.SymInt) for n in node.meta["val"].shape):
            node.target = torch.ops.aten.cos.default
    graph.recompile()
    return right(graph, inputs, *arguments, **options)
pipeline.compile_graph = compile_graph
""",
    "a wrong rewrite": """
import torch, fxstack
from fxstack import pipeline
right = pipeline.aot
def aot(graph, inputs, **arguments):
    for node in graph.graph.find_nodes(op="call_method", target="add_"):
        node.target = "sub_"
    graph.recompile()
    return right(graph, inputs, **arguments)
pipeline.aot = aot
""",
    "a wrong polyfill": """
import fxstack
from fxstack_capture.interpreter import polyfills as functions
def any_of(iterable):
    for item in iterable:
        if not item:
            return False
    return True
functions.any_of.__code__ = any_of.__code__
""",
}


def python(folder: Path, fault: str, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python in ``folder`` with a planted fault; "" plants none."""
    site = folder / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(FAULTS.get(fault, ""))
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "FXSTACK_INDUCTOR_CACHE_DIR": str(folder / "cache"),
        **variables,
    }
    environment.pop("FXSTACK_RAISE_FAILURES", None)
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=False, cwd=folder, env=environment
    )


def minified(folder: Path, fault: str, program: str) -> tuple[dict[str, Any], str]:
    """Minify a program with a planted fault; return the verdict, and the script, which must fail alone."""
    (folder / "program.py").write_text(program)
    done = python(folder, fault, "-m", "fxstack", "minify", "--json", "program.py")
    assert done.stdout, done.stderr
    verdict = json.loads(done.stdout[done.stdout.index("{") :])
    assert done.returncode == verdict["status"], done.stderr
    script = folder / "fxstack_minified.py"
    return verdict, script.read_text() if script.exists() else ""
