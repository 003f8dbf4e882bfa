"""Errors that a program written for ``torch.compile`` catches by the names of torch's classes.

``except torch._dynamo.exc.Unsupported`` looks at the bases of the class of an error. A class of ours names its
counterpart in ``torch._dynamo.exc``, and has it as a base as soon as that module is loaded. No package of ours
loads it; a program that has not loaded it cannot name its classes either.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, Self

MODULE: Final = "torch._dynamo.exc"

_WAITING: Final[dict[type[CompilerError], str]] = {}
"""The classes that do not have their counterpart as a base yet, with its name."""


class CompilerError(RuntimeError):
    """The base of errors with a counterpart in torch's compiler: ``class Mine(CompilerError, of_torch="Name")``.

    Changing the bases of a class needs a base that is written in Python, which this class is.
    """

    first_useful_frame: Final = None
    """What torch reads of its errors when one passes through a function that torch has compiled."""

    def __init_subclass__(cls, *, of_torch: str = "", **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if of_torch:
            _WAITING[cls] = of_torch

    def __new__(cls, *args: Any, **_keywords: Any) -> Self:
        derive_from_torch()
        return super().__new__(cls, *args)

    def __init__(self, *args: object) -> None:
        RuntimeError.__init__(self, *args)  # the initialisers of torch's classes have other parameters

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        return _copied, (type(self), self.args), self.__dict__


def _copied(cls: type[CompilerError], args: tuple[Any, ...]) -> CompilerError:
    error = cls.__new__(cls)
    RuntimeError.__init__(error, *args)
    return error


def derive_from_torch() -> None:
    """Let the classes of ours derive from their counterparts, if the module of these is loaded."""
    module = sys.modules.get(MODULE)
    if module is None:
        return
    for cls, name in tuple(_WAITING.items()):
        counterpart = getattr(module, name, None)
        if counterpart is not None and _WAITING.pop(cls, ""):
            cls.__bases__ = (*cls.__bases__, counterpart)


def found(name: str) -> tuple[Any, ...]:
    """What torch's module calls ``name``, as the operand of ``except``; nothing as long as it is not loaded."""
    value = getattr(sys.modules.get(MODULE), name, None)
    return () if value is None else (value,)
