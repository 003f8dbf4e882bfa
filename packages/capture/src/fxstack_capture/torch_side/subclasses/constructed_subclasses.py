"""Wrapper subclasses that the program constructs while it is traced.

``torch.Tensor._make_wrapper_subclass`` returns a tensor without data. The program's ``__new__`` and
``__init__`` then add inner tensors and other attributes. The interpreter runs both. If the program only reads
the inner tensors, the graph never has the wrapper. If an operator uses the wrapper, a node constructs the
wrapper with ``__tensor_unflatten__``. If the wrapper leaves the graph, the replacement code constructs the
wrapper with the program's own call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import calls_program
from fxstack_capture.torch_compat import FakeTensor
from fxstack_capture.trace.records import Construction
from fxstack_capture.trace.state import Args


class PutTogether:
    """The target of a node that constructs a wrapper of class ``cls`` from its inner tensors."""

    __slots__ = ("__name__", "cls", "context", "names")

    def __init__(self, cls: Any, names: tuple[str, ...], context: object) -> None:
        self.__name__ = f"put_together_{cls.__name__}"
        self.cls = cls
        self.names = names
        self.context = context

    def __call__(
        self, inner: tuple[torch.Tensor, ...], size: tuple[int, ...], stride: tuple[int, ...]
    ) -> Any:
        parts = dict(zip(self.names, inner, strict=True))
        return self.cls.__tensor_unflatten__(parts, self.context, size, stride)


@calls_program
def made_by(function: Callable[..., Any], args: Args, kwargs: Any) -> Construction:
    """Run ``torch.Tensor._make_wrapper_subclass``. Break the graph if the result requires a gradient."""
    # A wrapper that requires a gradient is a new leaf.
    made = function(*args, **kwargs)
    if made.requires_grad:
        name = type(made).__qualname__
        raise graph_break("unsupported-tensor", f"a new {name} that requires a gradient")
    return Construction(made, function, args, kwargs)


def target_for(made: Any) -> tuple[PutTogether, tuple[torch.Tensor, ...]]:
    """Return the target that constructs the wrapper, and the inner tensors."""
    names, context = made.__tensor_flatten__()
    inner = tuple(getattr(made, name) for name in names)
    target = PutTogether(type(made), tuple(names), context)
    demand_kept(target(inner, tuple(made.size()), made.stride()), names, inner)
    return target, inner


def demand_kept(made: object, names: Iterable[str], inner: Iterable[torch.Tensor]) -> None:
    """Break the graph if ``__tensor_unflatten__`` does not use the given inner tensors."""
    for name, given in zip(names, inner, strict=True):
        found = getattr(made, name)
        if type(found) is not type(given) or (
            type(given) is FakeTensor and found.untyped_storage()._cdata != given.untyped_storage()._cdata
        ):
            text = f"a {type(made).__qualname__}, whose __tensor_unflatten__ changes {name}"
            raise graph_break("unsupported-tensor", text)
