"""A template of a test: one entry of the list is enough for lowering, fusion, writing and prediction."""

from dataclasses import dataclass

import torch
from inductor_checks import trace

from fxstack_inductor import lower
from fxstack_inductor.cost.roofline import Cost
from fxstack_inductor.ir.expr import Expr, integer
from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.ir.nodes import Call
from fxstack_inductor.lower.context import read
from fxstack_inductor.templates import all_templates
from fxstack_inductor.templates.template import Template
from fxstack_inductor.tiling.tiles import Config

aten = torch.ops.aten


@dataclass(frozen=True)
class Tiling:
    kernel: Kernel
    config: Config = Config(1, 1, 4)
    kind: str = "outer product"
    grid: Expr = integer(1)


def dot(ctx, a, b):
    def body(index, reduced):
        return Call("mul", (read(a, (index[0], *reduced)), read(b, (*reduced, index[1]))), torch.float32)

    made = ctx.reduction("dot", (a.shape[0], b.shape[1]), (a.shape[1],), torch.float32, body)
    made.template = "outer product"
    return made


def rules(graph_module, options, target):
    return {node.name: dot for node in graph_module.graph.nodes if node.target is aten.mm.default}


OUTER = Template(
    "outer product",
    lambda kernel, config: Tiling(kernel),
    lambda tiling, name: f"@triton.jit\ndef {name}():\n    pass  # {', '.join(tiling.kernel.origins)}",
    lambda tiling, gpu, sizes: Cost(tiling.kernel.name, "outer product", 1, 2, 3, 1, 0.5, "memory"),
    rules=rules,
)


def test_a_template_is_one_entry_of_the_list(monkeypatch):
    templates = {**all_templates.TEMPLATES, OUTER.name: OUTER}
    for module in ("all_templates", "kernels"):
        monkeypatch.setattr(f"fxstack_inductor.templates.{module}.TEMPLATES", templates)
    monkeypatch.setattr("fxstack_inductor.targets.triton.artifact.TEMPLATES", templates)
    x = torch.randn(8, 8)
    lowered = lower(trace(lambda x: ((x @ x).relu(), x.sum(0)), x), target="cuda")
    assert "pass  # mm, relu" in lowered.kernels  # the pointwise reader is fused, the reduction is not
    assert [cost.seconds for cost in lowered.predict()][0] == 0.5
    assert len(lowered.source.functions) == 2
