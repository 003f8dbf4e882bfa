"""``verify_correctness``: compare the compiled code with the captured graph in every call.

The first difference raises an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule

from fxstack_capture.driver.errors import WrongResultError

_RELATIVE, _ABSOLUTE = 1e-3, 1e-4
_DOUBLE_RELATIVE, _DOUBLE_ABSOLUTE = 1e-7, 1e-8


def verified(
    compiled: Callable[..., Any], graph: GraphModule, backend: str, where: str
) -> Callable[..., Any]:
    """Return a function that calls ``compiled``, and compares the results with those of ``graph``.

    ``graph`` runs on copies of the inputs, with the same random numbers. The comparison covers outputs and
    mutated inputs: shape, dtype, gradient flag and values. The relative and absolute tolerances are 1e-3 and
    1e-4, or 1e-7 and 1e-8 in double precision. NaNs equal each other.
    """

    def run(*inputs: object) -> Any:
        # Copy the inputs first, because both runs may change inputs.
        copies = [_copy(value) for value in inputs]
        state = torch.get_rng_state()
        expected = graph(*copies)
        # Both runs draw the same random numbers.
        torch.set_rng_state(state)
        results = compiled(*inputs)
        names = _output_names(graph)
        pairs = [*zip(names, expected, results, strict=True)]
        placeholders = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
        pairs += zip(placeholders, copies, inputs, strict=True)
        for name, graph_value, value in pairs:
            text = difference(graph_value, value)
            if text is not None:
                raise WrongResultError(
                    f"the code that backend {backend} compiled from {where} is wrong: {name} {text}\n"
                    "fix: report this to the backend's authors with the program; run with backend='eager' meanwhile."
                )
        return results

    return run


def _copy(value: object) -> Any:
    """Return a copy of a tensor with the same strides. The copy is a leaf or a view of a leaf. Any other
    value is returned unchanged.
    """
    if not isinstance(value, torch.Tensor):
        return value
    copied = value.detach().clone(memory_format=torch.preserve_format)
    if copied.stride() != value.stride():
        copied = torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype, device=value.device
        ).copy_(value.detach())
    copied.requires_grad_(value.requires_grad)
    # Autograd forbids in-place operations on leaves that require gradients, but not on views of them.
    return copied if value.is_leaf else copied.view_as(copied)


def _output_names(graph: GraphModule) -> list[str]:
    """Return the names of the nodes that a graph returns. For other outputs, return the ``repr``."""
    (output,) = (node for node in graph.graph.nodes if node.op == "output")
    return [getattr(value, "name", repr(value)) for value in output.args[0]]


def difference(expected: object, actual: object) -> str | None:
    """Return the difference as a phrase that follows the name of an output. None if there is no difference.

    For example "is torch.float64, should be torch.float32".
    """
    if not isinstance(expected, torch.Tensor):
        return None if expected == actual else f"is {actual!r}, should be {expected!r}"
    if not isinstance(actual, torch.Tensor):
        return f"is a {type(actual).__name__}, should be a tensor"
    for fact in (lambda t: t.dtype, lambda t: tuple(t.shape), lambda t: t.requires_grad):
        if fact(expected) != fact(actual):
            return f"is {fact(actual)}, should be {fact(expected)}"
    double = expected.dtype in (torch.float64, torch.complex128)
    relative, absolute = (_DOUBLE_RELATIVE, _DOUBLE_ABSOLUTE) if double else (_RELATIVE, _ABSOLUTE)
    if expected.is_floating_point() or expected.is_complex():
        close = torch.isclose(
            actual.detach(), expected.detach(), rtol=relative, atol=absolute, equal_nan=True
        )
    else:
        close = actual == expected
    if bool(close.all()):
        return None
    index = tuple(int(i) for i in (~close).nonzero()[0])
    wrong, right = actual.detach()[index].item(), expected.detach()[index].item()
    return f"differs in {int((~close).sum())} place(s), first at {index}: is {wrong}, should be {right}"
