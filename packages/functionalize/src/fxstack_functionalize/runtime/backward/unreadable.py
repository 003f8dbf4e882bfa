"""Saved tensors that were changed before the backward, if the backward does not need them.

Autograd checks the version of a saved tensor when the node that saved it runs. A compiled graph is one node,
and reading ``ctx.saved_tensors`` checks all tensors, including those that only results without gradient need.
If this check fails, each tensor is read alone, and the error is raised only if the running part of the
backward needs the tensor.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

# Limits: eager raises for each changed saved tensor. A compiled graph raises only for tensors that its
# backward reads. Names of nodes and version numbers in the message are those of the compiled code.


def read_alone(ctx: Any, error: RuntimeError) -> tuple[list[Any], dict[int, RuntimeError]]:
    """Return the saved tensors (None if unreadable), and by position the errors of unreadable ones.

    Raises:
        RuntimeError: ``error``, if no single tensor causes it.
    """
    try:
        packed = ctx._raw_saved_tensors
    except RuntimeError:
        raise error from None
    tensors: list[Any] = []
    unreadable: dict[int, RuntimeError] = {}
    for place, saved in enumerate(packed):
        try:
            tensors.append(saved.unpack())
        except (RuntimeError, AttributeError):
            tensors.append(None)
            unreadable[place] = error
    if not unreadable:
        raise error
    return tensors, unreadable


def demand_readable(
    unreadable: Mapping[int, RuntimeError], places: Sequence[Collection[int]], needed: Collection[int] | None
) -> None:
    """Raise if one of the arguments ``needed`` (None: all) comes from an unreadable position.

    ``places``: for each argument its position, and that of its base, in ``ctx.saved_tensors``.
    """
    for argument in range(len(places)) if needed is None else needed:
        for place in places[argument] if argument < len(places) else ():
            if place in unreadable:
                raise unreadable[place]
