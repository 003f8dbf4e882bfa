"""Operations for code that this package writes. Each Python version has its own names and order for them."""

from __future__ import annotations

import dis
from functools import partial

from fxstack_capture.bytecode.assemble import Op

NULL_AFTER = "CALL_KW" in dis.opmap
"""Whether the NULL of a call is above the callable (from Python 3.13 on). Before, the NULL is below the
callable.
"""

NULL_IN_WITH = "LOAD_SPECIAL" in dis.opmap
"""Whether Python is 3.14 or later.

From 3.14 on, ``with`` keeps a NULL above ``__exit__``. A call with ``*args`` has a NULL for missing keyword
arguments. ``pop`` accepts a NULL.
"""

THROW_LEAVES_SEND = "CLEANUP_THROW" not in dis.opmap
"""Whether ``generator.throw`` finds the SEND before a ``yield`` and makes the SEND's jump itself (Python
3.11).
"""

_HAS_PRECALL = "PRECALL" in dis.opmap


def _jump_name(condition: str) -> str:
    """Return the name of the forward jump for ``condition`` in this version of Python."""
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
"""Raise an exception again, without changing its traceback or context.

With the argument 1, the offset of the original instruction lies below the exception on the stack.
"""
begin_handling = partial(Op, "PUSH_EXC_INFO")
end_handling = partial(Op, "POP_EXCEPT")


def take(slot: int) -> list[Op]:
    """Return operations that push the variable in ``slot`` and unbind it. The variable then keeps no value
    alive.
    """
    return [Op("LOAD_FAST", slot), Op("DELETE_FAST", slot)]


def call(function: list[Op], arguments: list[Op], count: int, offset: int = -1) -> list[Op]:
    """Return operations that call a function with ``count`` positional arguments.

    ``function`` and ``arguments`` are operations that push the values. ``offset`` is the ``Op.offset`` of the
    call instruction.
    """
    begin = [*function, null()] if NULL_AFTER else [null(), *function]
    return [*begin, *arguments, *_call(count, offset)]


def call_with_top(function: Op) -> list[Op]:
    """Return operations that replace the top of the stack by ``function(top)``.

    ``function`` is the operation that pushes the function.
    """
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
    """Return a copy of ``op``. If ``op`` is a jump, the copy jumps forward.

    In Python 3.11, forward and backward jumps have different names.
    """
    return Op(op.name.replace("JUMP_BACKWARD_IF", "JUMP_FORWARD_IF"), op.arg, op.target, op.position)
