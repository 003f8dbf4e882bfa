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
    """Return the rules of all templates."""
    rules_by_template = (template.rules(graph_module, options, target) for template in TEMPLATES.values())
    return {name: rule for rules in rules_by_template for name, rule in rules.items()}


def template_candidates(graph_module: GraphModule) -> dict[str, Candidate]:
    """Return the candidates of all templates."""
    candidates_by_template = (template.candidates(graph_module) for template in TEMPLATES.values())
    return {
        name: candidate for candidates in candidates_by_template for name, candidate in candidates.items()
    }
