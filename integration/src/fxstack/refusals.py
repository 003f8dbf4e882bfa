"""What a compiled graph refuses, eager torch refuses in its own words.

An operator that was decomposed fails with the words of a part of it: cross entropy with a bad target is a bad index of a
``gather``. A graph in which that happens before anything was written is run once more, as it was captured, by eager torch,
whose exception is the program's.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

from fxstack import torch_compat
from fxstack_inductor.errors import IndexOutOfRange

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import GraphModule, Node

# Limits: graphs that change their inputs or draw random numbers run again for bad indices only. Other
# exceptions, and those of a backward, have the words of the decomposed operators.

ASSERTIONS = frozenset(
    {torch.ops.aten._assert_async.default, torch.ops.aten._assert_async.msg}
    | {torch.ops.aten._assert_scalar.default, torch.ops.aten._assert_tensor_metadata.default}
)


def eager_error(
    failure: Exception, eager: Callable[..., Any], args: tuple[Any, ...], *, repeats: bool
) -> Any:
    """Raise what ``eager``, the captured graph, raises where its compiled graphs raised ``failure``.

    ``repeats`` says whether they may run twice.

    Where eager torch raises nothing its results are returned, with a warning: the compiled graph was wrong.
    """
    # Kernels find a bad index before anything is written.
    if not isinstance(failure, IndexOutOfRange):
        hooks = torch_compat.top_saved_tensors_default_hooks(True)
        if hooks is not None or not repeats:
            raise failure
    results = eager(*args)
    text = f"{type(failure).__name__}: {failure}".splitlines()[0][:300]
    warnings.warn(
        f"fxstack: a compiled graph raised {text}; eager torch computes it, and this call returns eager's results. "
        "This is a defect of fxstack: please report it.",
        stacklevel=3,
    )
    return results


def repeatable(graph_module: GraphModule) -> bool:
    """Whether a functional ATen graph may run twice: it changes no input, draws no random number and has no effect."""
    return not any(_lasts(node) for node in graph_module.graph.nodes)


def _lasts(node: Node) -> bool:
    if node.op != "call_function" or node.target in ASSERTIONS:
        return False
    schema = getattr(node.target, "_schema", None)
    tags = getattr(node.target, "tags", ())
    changes = schema is not None and schema.is_mutable
    return changes or torch.Tag.nondeterministic_seeded in tags or node.is_impure()
