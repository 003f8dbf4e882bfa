"""Graphs with matrix products, scheduled as for a GPU that is not there."""

from dataclasses import replace

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor import InductorOptions, decompositions
from fxstack_inductor.lower.graph import lower_graph
from fxstack_inductor.lower.rules import RULES
from fxstack_inductor.schedule.plan import plan
from fxstack_inductor.schedule.steps import KernelStep
from fxstack_inductor.targets.triton.lower import KERNELS
from fxstack_inductor.templates.all_templates import template_candidates

OPTIONS = InductorOptions()


def gelu(x, w):
    return torch.nn.functional.gelu(x @ w)


def planner(fn, count=2, size=512):
    inputs = [torch.empty(size, size, dtype=torch.bfloat16) for _ in range(count)]
    graph = make_fx(fn, decomposition_table=decompositions(), tracing_mode="fake")(*inputs)

    def planned(rules):
        chosen = {name: one.rule for name, one in rules.items()}
        return plan(lower_graph(graph, RULES, OPTIONS, replace(KERNELS, device="cpu"), chosen), OPTIONS)

    return planned, template_candidates(graph)


def product_kernels(plan):
    return [step.kernel for step in plan.steps if isinstance(step, KernelStep) and step.kernel.template]
