"""Operations for code that this package writes. Their names and order differ between Python versions."""

from __future__ import annotations

import dis
from functools import partial

from fxstack_capture.bytecode.assemble import Op

NULL_AFTER = "CALL_KW" in dis.opmap
"""Whether the NULL of a call lies above the callable (from Python 3.13 on) and not below."""

NULL_IN_WITH = "LOAD_SPECIAL" in dis.opmap
"""Whether Python is 3.14 or later: ``with`` keeps a NULL above ``__exit__``, a call with ``*args`` has a NULL for
missing keyword arguments, and ``pop`` accepts a NULL."""

THROW_LEAVES_SEND = "CLEANUP_THROW" not in dis.opmap
"""Whether ``generator.throw`` itself finds the SEND before a ``yield`` and makes its jump (Python 3.11)."""

_HAS_PRECALL = "PRECALL" in dis.opmap


def _jump_name(condition: str) -> str:
    """Return the name of the forward jump with ``condition`` in this version of Python."""
    names = f"POP_JUMP_FORWARD_IF_{condition}", f"POP_JUMP_IF_{condition}"
    return next(name for name in names if name in dis.opmap)


nop = partial(Op, "NOP")
constant = partial(Op, "LOAD_CONST")
null = partial(Op, "PUSH_NULL")
copy = partial(Op, "COPY")
swap = partial(Op, "SWAP")
pop = partial(Op, "POP_TOP")
is_same = partial(Op, "IS_OP", 0)
make_tuple = partial(Op, "BUILD_TUPLE")
call_with_sequence = partial(Op, "CALL_FUNCTION_EX", 0)
jump = partial(Op, "JUMP_FORWARD", 0)
jump_if_none = partial(Op, _jump_name("NONE"), 0)
jump_if_false = partial(Op, _jump_name("FALSE"), 0)
send = partial(Op, "SEND", 0)
leave = partial(Op, "RETURN_VALUE")
throw = partial(Op, "RAISE_VARARGS", 1)
reraise = partial(Op, "RERAISE")
"""Raise again. Changes neither traceback nor context. With the argument 1, the offset lies below the exception."""
begin_handling = partial(Op, "PUSH_EXC_INFO")
end_handling = partial(Op, "POP_EXCEPT")


def take(slot: int) -> list[Op]:
    """Return operations that push the variable in ``slot`` and unbind it, so that it does not keep its value alive."""
    return [Op("LOAD_FAST", slot), Op("DELETE_FAST", slot)]


def call(function: list[Op], arguments: list[Op], count: int, offset: int = -1) -> list[Op]:
    """Return operations that call a function with ``count`` positional arguments.

    ``function`` and ``arguments`` push the values. ``offset``: ``Op.offset`` of the call itself.
    """
    begin = [*function, null()] if NULL_AFTER else [null(), *function]
    return [*begin, *arguments, *_call(count, offset)]


def call_with_top(function: Op) -> list[Op]:
    """Return operations that replace the top of the stack by ``function(top)``. ``function`` pushes the function."""
    swapped = [function, swap(2)]
    begin = [*swapped, null(), swap(2)] if NULL_AFTER else [null(), swap(2), *swapped]
    return [*begin, *_call(1)]


def _call(count: int, offset: int = -1) -> list[Op]:
    """Return the instructions of a call with ``count`` arguments. Python 3.11 has a PRECALL before the CALL."""
    names = ("PRECALL", "CALL") if _HAS_PRECALL else ("CALL",)
    ops = [Op(name, count) for name in names]
    ops[0].offset = offset
    return ops


def forward(op: Op) -> Op:
    """Return a copy of ``op`` that jumps forward if it is a jump: in 3.11 the directions have different names."""
    return Op(op.name.replace("JUMP_BACKWARD_IF", "JUMP_FORWARD_IF"), op.arg, op.target, op.position)
