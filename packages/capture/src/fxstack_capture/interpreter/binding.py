"""Bind call arguments to parameters exactly as CPython does, including the error messages.

This module handles the common case: as many positional arguments as parameters. CPython handles every other
case: a stub function with the same signature and qualified name returns its own locals as a list.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import CodeType, FunctionType
from typing import Any

from fxstack_capture.bytecode.arguments import argument_names
from fxstack_capture.bytecode.null import NULL
from fxstack_capture.bytecode.units import slot_names
from fxstack_capture.callers import calls_program


class Signature:
    """The parameters of a code object, which bind the arguments of each call of its functions.

    ``plain``: all parameters are positional, without ``*args`` and ``**kwargs``.
    """

    __slots__ = ("_padding", "_stub", "argcount", "flags", "parameters", "plain", "template")

    def __init__(self, code: CodeType) -> None:
        self.flags = code.co_flags
        self.argcount = code.co_argcount
        self.parameters = len(argument_names(code))
        self.plain = self.parameters == code.co_argcount
        self._padding = (NULL,) * (len(slot_names(code)) - self.parameters)
        self._stub: CodeType | None = None
        # What the stub needs; the code object itself must not be kept alive.
        self.template = (argument_names(code), code.co_posonlyargcount, code.co_kwonlyargcount, code.co_name)
        """Names of the parameters, numbers of positional-only and keyword-only parameters, and the name."""

    @calls_program
    def bind(
        self,
        parts: tuple[str, tuple[Any, ...] | None, Mapping[str, Any] | None],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> list[Any]:
        """Return the initial local slots (``Frame.fast``) of a call. Raises CPython's TypeError for wrong arguments.

        ``parts``: the function's qualified name, defaults and keyword defaults.
        """
        if self.plain and not kwargs and len(args) == self.argcount:
            return [*args, *self._padding]
        if self._stub is None:
            self._stub = self._make_stub()
        qualname, defaults, kwdefaults = parts
        stub = FunctionType(self._stub, {}, None, defaults or None)
        stub.__qualname__ = qualname
        if kwdefaults:
            stub.__kwdefaults__ = dict(kwdefaults)
        return [*stub(*args, **kwargs), *self._padding]

    def _make_stub(self) -> CodeType:
        """Return the code of a stub: a function with the same parameters, whose body returns them as a list.

        ``bind`` calls the stub, so CPython binds the arguments and raises its own errors for wrong ones.
        """
        names, posonly, kwonly, name = self.template
        # The parameters have neutral names, because names such as ``.0`` are no valid source. ``replace``
        # restores the real names, which error messages contain.
        parameters = [f"p{index}" for index in range(len(names))]
        declared = [*parameters[: self.argcount]]
        if posonly:
            declared.insert(posonly, "/")
        rest = parameters[self.argcount + kwonly :]
        if self.flags & inspect.CO_VARARGS:
            declared.append("*" + rest.pop(0))
        elif kwonly:
            declared.append("*")
        declared += parameters[self.argcount : self.argcount + kwonly]
        declared += ["**" + parameter for parameter in rest]
        source = f"def stub({', '.join(declared)}): return [{', '.join(parameters)}]"
        module = compile(source, "<signature>", "exec")
        (stub,) = (const for const in module.co_consts if isinstance(const, CodeType))
        return stub.replace(co_varnames=names, co_name=name)
