"""Which frame of a compiled callable a shape contract is about, and what its arguments are."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from fxstack_capture.driver.calling import function_of
from fxstack_capture.driver.frame_policy.policy import is_module_call
from fxstack_capture.guards.accesses import RealFrame
from fxstack_capture.shapes.contract import Bound, ShapeContract
from fxstack_capture.sources import Item, Key, Local, Source

Arguments = dict[str, tuple[object, "Source | None"]]


class CallContract:
    """A shape contract for the calls of ``fn``, a function, method, partial or module.

    Raises:
        TypeError: ``fn`` runs no Python function, so nothing has parameters that the contract could be about.
    """

    def __init__(self, contract: ShapeContract, fn: Callable[..., Any]) -> None:
        self._contract = contract
        self._fn = fn
        self._module = fn if isinstance(fn, torch.nn.Module) else None
        self._called()

    def bind(self, frame: RealFrame) -> Bound | None:
        """The contract over the arguments of this frame; None for frames that it is not about.

        Raises:
            ShapeContractError: the call does not keep to it.
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
        return _function_and_given(self._fn if self._module is None else self._module.forward)


def names_of_forward(frame: RealFrame) -> dict[Source, Source]:
    """What the arguments of ``frame``, a call of a module, are called in its ``forward``; {} where that is not Python."""
    module: Any = frame.arguments.get("self")
    try:
        called = _function_and_given(module.forward)
    except (AttributeError, TypeError):
        return {}
    arguments = _of_module(frame, *called)
    return {source: Local(name) for name, (_, source) in arguments.items() if source is not None}


def _function_and_given(fn: Any) -> tuple[FunctionType, int]:
    """The Python function that a call comes to, and how many arguments it is given before the caller's."""
    given = 0
    while isinstance(fn, functools.partial):
        fn, given = fn.func, given + len(fn.args)
    function, leading = function_of(fn)
    return function, given + len(leading)


def _of_module(frame: RealFrame, function: FunctionType, leading: int) -> Arguments:
    """The arguments of ``forward`` as a call of the module passes them on."""
    args: Any = frame.arguments["args"]
    keywords: Any = frame.arguments["kwargs"]
    rest = dict(keywords)
    parameters = list(inspect.signature(function).parameters.values())[leading:]
    found: Arguments = {}
    for index, parameter in enumerate(parameters):
        name = parameter.name
        if parameter.kind is parameter.VAR_POSITIONAL:
            found[name] = tuple(args[index:]), None
        elif parameter.kind is parameter.VAR_KEYWORD:
            found[name] = rest, Local("kwargs")
        elif index < len(args) and parameter.kind is not parameter.KEYWORD_ONLY:
            found[name] = args[index], Item(Local("args"), index)
        elif name in rest:
            found[name] = rest.pop(name), Key(Local("kwargs"), name)
        elif parameter.default is not parameter.empty:
            found[name] = parameter.default, None
    return found
