"""Saved tensors that were changed before the backward, where the backward does not need them.

Autograd looks at the version of a saved tensor when the node that saved it runs. A compiled graph is one node, and reading
``ctx.saved_tensors`` looks at all of them, also at those that only results without a gradient need. Where that fails, each
is read alone, and the error is raised if the part of the backward that runs needs the tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


# Limits: eager raises for each changed saved tensor. A compiled graph raises only for tensors that its
# backward reads. Names of nodes and version numbers in the message are those of the compiled code.


def read_alone(ctx: Any, error: RuntimeError) -> tuple[list[Any], dict[int, RuntimeError]]:
    """Return the saved tensors, None for those that cannot be read, and by place why they cannot.

    Raises:
        RuntimeError: ``error``, if it is not about some of the tensors.
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
    """Raise where one of the arguments ``needed`` (None: all) comes from a place that cannot be read.

    ``places``: by argument, the places that it and the tensor that it is a view of have in ``ctx.saved_tensors``.
    """
    for argument in range(len(places)) if needed is None else needed:
        for place in places[argument] if argument < len(places) else ():
            if place in unreadable:
                raise unreadable[place]
