"""Calls as operations: the order of callable and NULL differs between Python versions."""

from __future__ import annotations

import dis

from fxstack_capture.bytecode.assemble import Op

NULL_AFTER = "CALL_KW" in dis.opmap
"""Since 3.13 the NULL of a call lies above the callable, before that below."""

NULL_IN_WITH = "LOAD_SPECIAL" in dis.opmap
"""Since 3.14 ``with`` keeps ``__exit__`` with a NULL above it, calls with ``*args`` have one for the keyword arguments, and
POP_TOP drops one."""

HAS_PRECALL = "PRECALL" in dis.opmap


def _jump_forward(condition: str) -> str:
    names = f"POP_JUMP_FORWARD_IF_{condition}", f"POP_JUMP_IF_{condition}"
    return next(name for name in names if name in dis.opmap)


JUMP_IF_NONE = _jump_forward("NONE")
JUMP_IF_FALSE = _jump_forward("FALSE")
"""Jumps forward."""


def calling(function: list[Op], arguments: list[Op], count: int) -> list[Op]:
    """``function`` called with ``count`` positional ``arguments``; the last operations make the call itself."""
    null = [Op("PUSH_NULL")]
    begin = [*function, *null] if NULL_AFTER else [*null, *function]
    prefix = [Op("PRECALL", count)] if HAS_PRECALL else []
    return [*begin, *arguments, *prefix, Op("CALL", count)]


def calling_on_top(function: Op) -> list[Op]:
    """``function`` called with the value on top of the stack."""
    null = [Op("PUSH_NULL"), Op("SWAP", 2)]
    swapped = [function, Op("SWAP", 2)]
    begin = [*swapped, *null] if NULL_AFTER else [*null, *swapped]
    prefix = [Op("PRECALL", 1)] if HAS_PRECALL else []
    return [*begin, *prefix, Op("CALL", 1)]
