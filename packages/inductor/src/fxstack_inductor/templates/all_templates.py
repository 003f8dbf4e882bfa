"""The list of templates."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from torch.fx import GraphModule

from fxstack_inductor.autotune.candidates import Candidate
from fxstack_inductor.lower.target import KernelTarget
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.templates.attention.template import ATTENTIONS
from fxstack_inductor.templates.product.template import PRODUCTS
from fxstack_inductor.templates.template import Rules, Template

TEMPLATES: Final = MappingProxyType[str, Template[Any]](
    {template.name: template for template in (PRODUCTS, ATTENTIONS)}
)
"""The templates by name."""


def template_rules(graph_module: GraphModule, options: InductorOptions, target: KernelTarget) -> Rules:
    """Return the rules of all templates for nodes of this graph, by the node's name.

    The lowering for Triton passes them to ``lower_graph`` as ``chosen``.
    """
    templates = TEMPLATES.values()
    return dict(item for t in templates for item in t.rules(graph_module, options, target).items())


def template_candidates(graph_module: GraphModule) -> dict[str, Candidate]:
    """Return the candidates of all templates for nodes of this graph, by the node's name."""
    return dict(item for t in TEMPLATES.values() for item in t.candidates(graph_module).items())
