"""Errors that a program written for ``torch.compile`` can catch by the names of torch's classes.

``except torch._dynamo.exc.Unsupported`` looks at the bases of an error's class. An error class of fxstack
names its counterpart in ``torch._dynamo.exc``, and derives from the counterpart as soon as the program has
loaded that module. fxstack never loads the module. A program that has not loaded the module cannot name its
classes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, Self

MODULE: Final = "torch._dynamo.exc"

_UNDERIVED: Final[dict[type[CompilerError], str]] = {}
"""Error class -> name of its counterpart in torch, for classes that do not derive from it yet."""


class CompilerError(RuntimeError):
    """The base of errors with a counterpart in torch's compiler: ``class Mine(CompilerError, of_torch="Name")``.

    CPython changes the bases of a class only if a base is written in Python; this class is that base.
    """

    first_useful_frame: Final = None
    """Attribute that torch reads from its errors when an error passes through a function that torch compiled."""

    def __init_subclass__(cls, *, of_torch: str = "", **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if of_torch:
            _UNDERIVED[cls] = of_torch

    def __new__(cls, *args: Any, **_keywords: Any) -> Self:
        derive_from_torch()
        return super().__new__(cls, *args)

    def __init__(self, *args: object) -> None:
        RuntimeError.__init__(self, *args)  # the initialisers of torch's classes have other parameters

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        return _restore_error, (type(self), self.args), self.__dict__


def _restore_error(cls: type[CompilerError], args: tuple[Any, ...]) -> CompilerError:
    """Return an error from its pickled form, without a call of its class, which may take other arguments."""
    error = cls.__new__(cls)
    RuntimeError.__init__(error, *args)
    return error


def derive_from_torch() -> None:
    """Let fxstack's error classes derive from their counterparts, if the program has loaded torch's module.

    Called when an error is created and when the drop-in sees the import of that module.
    """
    module = sys.modules.get(MODULE)
    if module is None:
        return
    for cls, name in tuple(_UNDERIVED.items()):
        counterpart = getattr(module, name, None)
        if counterpart is not None and _UNDERIVED.pop(cls, ""):
            cls.__bases__ = (*cls.__bases__, counterpart)


def torch_error_types(name: str) -> tuple[Any, ...]:
    """Return torch's error class ``name`` in a tuple, for ``except``; an empty tuple if its module is not loaded."""
    value = getattr(sys.modules.get(MODULE), name, None)
    return () if value is None else (value,)
