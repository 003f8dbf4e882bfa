"""The CPU target: C kernels, and a host program in C or Python."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch.fx import GraphModule

from fxstack_inductor.codegen.c.module import c_source
from fxstack_inductor.codegen.host.native import native_program
from fxstack_inductor.codegen.host.native_calls import through_shim
from fxstack_inductor.codegen.host.python_host import host_program
from fxstack_inductor.errors import CompilerFailedError, NoCompilerError
from fxstack_inductor.failures import about
from fxstack_inductor.lower.accumulate import accumulate_products
from fxstack_inductor.lower.graph import lower_graph
from fxstack_inductor.lower.rules import RULES
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.runtime.native import Refused, native_table
from fxstack_inductor.schedule.outvariants import draws_bernoulli
from fxstack_inductor.schedule.plan import KernelStep, plan
from fxstack_inductor.targets.c_artifact import image_of, link
from fxstack_inductor.targets.lowered_c import Lowered

Compiled = Callable[..., tuple[Any, ...]]


FEWEST_CALLS = 4
"""A graph without kernels justifies a compiler run if a native host program speeds up this many calls."""


SHOW_IT = (
    "a script that shows it alone: fxstack_inductor.write_repro(graph, example_inputs, 'repro.py'), or have one written for "
    "each graph of a program with options={'repro_dir': 'FOLDER'} or FXSTACK_REPRO_DIR=FOLDER in the environment"
)


def lower_c(graph_module: GraphModule, options: InductorOptions, *, boxed: bool = False) -> Lowered:
    """Return the generated code; neither a compiler nor a certain machine is needed."""
    accumulated = accumulate_products(graph_module)
    scheduled = plan(lower_graph(accumulated, RULES, options), options)
    kernels = [step.kernel for step in scheduled.steps if isinstance(step, KernelStep)]
    random = any(draws_bernoulli(step) for step in scheduled.steps)
    source = c_source(kernels, options, random=random)
    worth = kernels or sum(map(through_shim, scheduled.steps)) >= FEWEST_CALLS
    if not worth or native_refusal(options) is not None:
        host = host_program(scheduled, source.functions, boxed=boxed, checks_numbers=options.nan_asserts)
        text = source.text if kernels or random else ""
        return Lowered(scheduled, text, host, source.functions, graph_module, options)
    native = native_program(scheduled, source, boxed=boxed)
    return Lowered(scheduled, source.text, native, source.functions, graph_module, options)


def _rejected(lowered: Lowered, reason: str) -> tuple[str, ...]:
    """Return the FX nodes of the kernel at the line of a compiler's error."""
    place = re.match(r"[^:\s]+:(\d+)", reason)
    if place is None:
        return ()
    before = "\n".join(lowered.text.split("\n")[: int(place[1])])
    names = re.findall(r"^(?:static [^\n]*)?void (kernel_\d+)", before, re.MULTILINE)
    kernels = (step.kernel for step in lowered.plan.steps if isinstance(step, KernelStep))
    found = (k.origins for k in kernels if names and lowered.functions[k.name] == names[-1])
    return next(found, ())


def native_refusal(options: InductorOptions) -> str | None:
    """Return why host programs are Python, or None."""
    if options.host == "python":
        return "the option host='python' is set"
    if options.nan_asserts:
        return "the option nan_asserts is set"
    table = native_table()
    return table.reason if isinstance(table, Refused) else None


def load_c(graph_module: GraphModule, options: InductorOptions, *, boxed: bool) -> Compiled:
    """Compile the graph into a callable.

    Raises:
        NoCompilerError: kernels are needed, and there is no C compiler.
    """
    lowered = lower_c(graph_module, options, boxed=boxed)
    try:
        run = link(image_of(lowered, boxed=boxed), options, lambda: graph_module)
    except CompilerFailedError as failure:
        failure.args = (f"{failure}\n{SHOW_IT}",)
        with about(*_rejected(lowered, failure.reason)):
            raise
    except NoCompilerError:
        if any(isinstance(step, KernelStep) for step in lowered.plan.steps):
            raise
        return load_c(graph_module, replace(options, host="python"), boxed=boxed)
    vars(run)["lowered"] = lowered
    return run
