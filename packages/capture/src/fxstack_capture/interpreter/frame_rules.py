"""Builtins that read the calling frame: ``super()``, ``locals()``, ``sys.exc_info()`` and so on.

``calls`` registers these rules (``FRAME_RULES``). A rule takes the interpreter, the positional arguments and
the keyword arguments. It returns the result of the call.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Mapping
from types import GeneratorType, MappingProxyType
from typing import Any

from fxstack_capture.bytecode.null import NULL
from fxstack_capture.interpreter.classes import build_class
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.interpreter.generators import TraceGenerator
from fxstack_capture.interpreter.machine import BytecodeInterpreter

FrameRule = Callable[[BytecodeInterpreter, tuple[Any, ...], dict[str, Any]], Any]


def python_type_of(obj: object) -> type:
    """Return the type that ``type(obj)`` gives to the program. For a ``TraceGenerator`` it is the generator
    type.
    """
    return GeneratorType if type(obj) is TraceGenerator else type(obj)


def super_arguments(frame: Frame) -> tuple[type, Any]:
    """Return the arguments of ``super()`` without arguments in ``frame``: the method's class and ``self``."""
    code = frame.code
    if code.co_argcount == 0:
        raise RuntimeError("super(): no arguments")
    instance = frame.value_of(0)
    if instance is NULL:
        raise RuntimeError("super(): arg[0] deleted")
    if "__class__" not in code.co_freevars:
        raise RuntimeError("super(): __class__ cell not found")
    cls = frame.value_of(frame.program.names.index("__class__"))
    if cls is NULL:
        raise RuntimeError("super(): empty __class__ cell")
    if not isinstance(cls, type):
        # Every error of ``super()`` without arguments is a RuntimeError in CPython.
        raise RuntimeError(  # noqa: TRY004
            f"super(): __class__ is not a type ({type(cls).__name__})"
        )
    return cls, instance


def _exc_info(
    interp: BytecodeInterpreter, _args: tuple[Any, ...], _kwargs: dict[str, Any]
) -> tuple[Any, Any, Any]:
    """Rule of ``sys.exc_info()``: return the exception that the program handles now."""
    exception = interp.handled.topmost()
    if exception is None:
        return None, None, None
    return type(exception), exception, exception.__traceback__


def _locals(interp: BytecodeInterpreter, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> dict[str, Any]:
    """Rule of ``locals()`` and ``vars()``: return the variables of the innermost interpreted frame."""
    return interp.current_frame().local_values()


FRAME_RULES: Mapping[Any, FrameRule] = MappingProxyType(
    {
        builtins.__build_class__: build_class,
        builtins.locals: _locals,
        builtins.vars: _locals,
        builtins.dir: lambda interp, _args, _kwargs: sorted(interp.current_frame().local_values()),
        sys.exc_info: _exc_info,
        sys.exception: lambda interp, _args, _kwargs: interp.handled.topmost(),
    }
)
"""Rules of functions that read the calling frame.

Most rules apply only to calls without arguments. The rule of ``__build_class__`` applies to every call.
"""
