"""Shape contracts: find the frame of a compiled callable to which a contract applies, and its arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import torch

from fxstack_capture.driver.frame_of_call import function_of
from fxstack_capture.driver.frame_policy.policy import is_module_call
from fxstack_capture.guards.accesses import RealFrame
from fxstack_capture.shapes.contract import Bound, ShapeContract
from fxstack_capture.sources import Item, Key, Local, Source

Arguments = dict[str, tuple[object, "Source | None"]]
"""Maps each parameter to its value and its source. For ``*args`` and for a default, the source is None."""


class CallContract:
    """A shape contract for the calls of ``fn``, which is a function, method, partial or module.

    Raises:
        TypeError: ``fn`` runs no Python function, so it has no parameters for a contract.
    """

    def __init__(self, contract: ShapeContract, fn: Callable[..., Any]) -> None:
        self._contract = contract
        self._fn = fn
        self._module = fn if isinstance(fn, torch.nn.Module) else None
        self._called()

    def bind(self, frame: RealFrame) -> Bound | None:
        """Return the contract bound to the arguments of this frame. None if the contract is about another
        frame.

        Raises:
            ShapeContractError: the call violates the contract.
        """
        arguments = frame.arguments
        code = frame.function.__code__
        if self._module is not None and is_module_call(code):
            if arguments.get("self") is not self._module:
                return None
            return self._contract.bind(_of_module(frame, *self._called()))
        function, leading = self._called()
        if frame.function is not function:
            return None
        names = list(arguments)[leading:]
        return self._contract.bind({name: (arguments[name], Local(name)) for name in names})

    def _called(self) -> tuple[FunctionType, int]:
        """Return the Python function to which the contract applies, and how many of its arguments are already
        given.
        """
        return _function_and_given(self._fn if self._module is None else self._module.forward)


def names_of_forward(frame: RealFrame) -> dict[Source, Source]:
    """Return the parameter of ``forward`` for each argument of ``frame``, which is a call of a module.

    Messages use these names: ``x`` in place of ``args[0]``. The program's shape options use them as well. The
    result is empty if ``forward`` is not a Python function.
    """
    module: Any = frame.arguments.get("self")
    try:
        called = _function_and_given(module.forward)
    except (AttributeError, TypeError):
        return {}
    arguments = _of_module(frame, *called)
    return {source: Local(name) for name, (_, source) in arguments.items() if source is not None}


def renamed_arguments(frame: RealFrame, code: CodeType) -> dict[str, str]:
    """Return the result of ``names_of_forward`` as texts, for example ``{"args[0]": "x"}``. {} if ``code`` is
    not that of a module call.
    """
    return (
        {of.name: name.name for of, name in names_of_forward(frame).items()} if is_module_call(code) else {}
    )


def _function_and_given(fn: Any) -> tuple[FunctionType, int]:
    """Return the Python function that a call of ``fn`` reaches, and the number of arguments that ``fn`` adds.

    For example, a bound method adds ``self``, and a partial object adds its arguments.
    """
    given = 0
    while isinstance(fn, functools.partial):
        fn, given = fn.func, given + len(fn.args)
    function, leading = function_of(fn)
    return function, given + len(leading)


def _of_module(frame: RealFrame, function: FunctionType, leading: int) -> Arguments:
    """Return the arguments that a call of a module passes to ``function``, the module's ``forward``.

    ``frame`` is the call of the module. ``leading`` is the number of parameters whose values do not come from
    the call.
    """
    args: Any = frame.arguments["args"]
    keywords: Any = frame.arguments["kwargs"]
    rest = dict(keywords)
    parameters = list(inspect.signature(function).parameters.values())[leading:]
    arguments: Arguments = {}
    for index, parameter in enumerate(parameters):
        name = parameter.name
        if parameter.kind is parameter.VAR_POSITIONAL:
            arguments[name] = tuple(args[index:]), None
        elif parameter.kind is parameter.VAR_KEYWORD:
            arguments[name] = rest, Local("kwargs")
        elif index < len(args) and parameter.kind is not parameter.KEYWORD_ONLY:
            arguments[name] = args[index], Item(Local("args"), index)
        elif name in rest:
            arguments[name] = rest.pop(name), Key(Local("kwargs"), name)
        elif parameter.default is not parameter.empty:
            arguments[name] = parameter.default, None
    return arguments
