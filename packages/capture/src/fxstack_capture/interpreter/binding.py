"""Bind call arguments to parameters exactly as CPython does, including the error messages.

This module binds the common case itself: as many positional arguments as parameters. For every other case,
CPython binds the arguments: a stub function with the same signature and qualified name returns its locals as
a list.
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
    """The parameters of a code object. ``bind`` binds the arguments of each call.

    ``plain``: all parameters are positional, and there is no ``*args`` or ``**kwargs``.
    """

    __slots__ = ("_padding", "_stub", "argcount", "flags", "parameters", "plain", "template")

    def __init__(self, code: CodeType) -> None:
        self.flags = code.co_flags
        self.argcount = code.co_argcount
        self.parameters = len(argument_names(code))
        self.plain = self.parameters == code.co_argcount
        self._padding = (NULL,) * (len(slot_names(code)) - self.parameters)
        self._stub: CodeType | None = None
        # Keep only the data for the stub. The signature must not keep the code object alive.
        self.template = (argument_names(code), code.co_posonlyargcount, code.co_kwonlyargcount, code.co_name)
        """Four values: the names of the parameters, the numbers of positional-only and keyword-only
        parameters, and the name of the function.
        """

    @calls_program
    def bind(
        self,
        parts: tuple[str, tuple[Any, ...] | None, Mapping[str, Any] | None],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> list[Any]:
        """Return the initial local slots (``Frame.fast``) of a call. Raises CPython's TypeError for wrong
        arguments.

        ``parts`` are the function's qualified name, defaults and keyword defaults.
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
        """Return the code of a stub: a function with the same parameters that returns them as a list.

        ``bind`` calls the stub. CPython then binds the arguments, or raises its own error.
        """
        names, posonly, kwonly, name = self.template
        # The source uses neutral names, because names such as ``.0`` are not valid in source. ``replace``
        # restores the real names, because error messages contain them.
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
