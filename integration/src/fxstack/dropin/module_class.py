"""``isinstance(m, torch._dynamo.OptimizedModule)`` for modules that fxstack has compiled."""

from __future__ import annotations

from typing import Any

from fxstack_capture import OptimizedModule


class _Both(type):
    """Metaclass that makes ``isinstance(m, OptimizedModule)`` true for fxstack modules too."""

    _of_torch: type

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (OptimizedModule, cls._of_torch))

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, (OptimizedModule, cls._of_torch))

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls._of_torch(*args, **kwargs)


def accept_both(of_torch: type) -> type:
    """Return a class that replaces torch's class of compiled modules. Calling the class makes a module of torch's compiler."""
    cls = _Both(
        of_torch.__name__, (of_torch,), {"__module__": of_torch.__module__, "__doc__": of_torch.__doc__}
    )
    cls._of_torch = of_torch
    return cls
