"""If a compiled graph raises, run eager torch to raise eager's error.

A decomposed operator fails with the error text of one of its parts: cross entropy with a bad target is a bad
index of a ``gather``. If this happens before the graph has written anything, eager torch runs the captured
graph again, and its exception reaches the program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

from fxstack import torch_compat
from fxstack_inductor.errors import IndexOutOfRange, NotFiniteError, WrongFakeError
from fxstack_interchange.torch_facts.effects import RANGES
from fxstack_interchange.user_warnings import warn_user

# Limits: graphs that change their inputs or draw random numbers run again for bad indices only. Other
# exceptions, and those of a backward, have the words of the decomposed operators.

ASSERTIONS = frozenset(
    {torch.ops.aten._assert_async.default, torch.ops.aten._assert_async.msg}
    | {torch.ops.aten._assert_scalar.default, torch.ops.aten._assert_tensor_metadata.default}
)


def eager_error(
    failure: Exception, eager: Callable[..., Any], args: tuple[Any, ...], *, repeats: bool
) -> Any:
    """Raise the exception of ``eager``, the captured graph, after its compiled graphs raised ``failure``.

    ``repeats``: whether the graphs may run twice. If eager torch raises nothing, return its results with a
    warning, because the compiled graph was wrong.
    """
    # The captured graph relies on the fake function, too; eager torch computes with NaN.
    if isinstance(failure, WrongFakeError | NotFiniteError):
        raise failure
    # Kernels find a bad index before they write anything.
    if not isinstance(failure, IndexOutOfRange):
        hooks = torch_compat.top_saved_tensors_default_hooks(True)
        if hooks is not None or not repeats:
            raise failure
    results = eager(*args)
    if isinstance(failure, OverflowError):  # an integer beyond 64 bits, of which eager makes a float
        return results
    text = f"{type(failure).__name__}: {failure}".splitlines()[0][:300]
    warn_user(
        f"fxstack: a compiled graph raised {text}; eager torch computes it, and this call returns eager's results. "
        "This is a defect of fxstack: please report it.",
        UserWarning,
    )
    return results


def can_repeat(graph_module: GraphModule) -> bool:
    """Whether a functional ATen graph may run twice: without mutations, random numbers and effects."""
    graphs = [module.graph for module in graph_module.modules() if isinstance(module, GraphModule)]
    return not any(_has_effects(node) for graph in graphs for node in graph.nodes)


def _has_effects(node: Node) -> bool:
    """Return whether a node mutates, draws random numbers or has other effects, assertions excepted."""
    if node.op != "call_function" or node.target in ASSERTIONS | RANGES:
        return False
    schema = getattr(node.target, "_schema", None)
    tags = getattr(node.target, "tags", ())
    changes = schema is not None and schema.is_mutable
    return changes or torch.Tag.nondeterministic_seeded in tags or node.is_impure()
