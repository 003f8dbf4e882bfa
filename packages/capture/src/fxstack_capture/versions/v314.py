"""The opcodes of Python 3.14 that differ from the common table and from 3.13."""

from __future__ import annotations

from types import MappingProxyType

from fxstack_capture.interpreter.handlers import calling, contexts, flow, operators, stack
from fxstack_capture.interpreter.handlers.variables import local_slots
from fxstack_capture.versions import v313
from fxstack_capture.versions.common import BINARY_OPS
from fxstack_capture.versions.lowering import chosen, fixed, forward, plain, refused, selected, two_locals

COMMON_CONSTANTS = (AssertionError, NotImplementedError, tuple, all, any)
"""The operands of LOAD_COMMON_CONSTANT by argument (``pycore_opcode_utils.h``)."""

SPECIAL_METHODS = ("__enter__", "__exit__", "__aenter__", "__aexit__")
"""The operands of LOAD_SPECIAL by argument (``pycore_opcode_utils.h``)."""

SUBSCRIPT = 26
"""The argument ``NB_SUBSCR`` of BINARY_OP: reading an item has become a binary operator."""

_GONE = frozenset(
    [
        "BEFORE_ASYNC_WITH",
        "BEFORE_WITH",
        "BINARY_SUBSCR",
        "BUILD_CONST_KEY_MAP",
        "LOAD_ASSERTION_ERROR",
        "LOAD_CLOSURE",
        "RETURN_CONST",
    ]
)

OPCODES = MappingProxyType(
    {
        **{name: lowering for name, lowering in v313.OPCODES.items() if name not in _GONE},
        "NOT_TAKEN": plain(stack.nop),
        "LOAD_SMALL_INT": plain(stack.load_const),
        "LOAD_COMMON_CONSTANT": selected(stack.load_const, COMMON_CONSTANTS),
        # A borrowed load: the compiler knows that the variable outlives the value on the stack.
        "LOAD_FAST_BORROW": plain(local_slots.load_fast, (0, 1)),
        "LOAD_FAST_BORROW_LOAD_FAST_BORROW": two_locals(local_slots.load_fast_load_fast, (0, 2)),
        "BINARY_OP": chosen(
            {**BINARY_OPS, SUBSCRIPT: fixed(operators.binary_subscr)}, "binary operator", (2, 1)
        ),
        # At the end of the iterator, CPython skips END_FOR. POP_ITER drops the iterator.
        "FOR_ITER": forward(flow.for_iter, (1, 2), skip=2),
        "POP_ITER": plain(stack.pop_top, (1, 0)),
        "CALL_FUNCTION_EX": plain(calling.call_function_ex_above_null, (4, 1)),
        "LOAD_SPECIAL": selected(contexts.load_special, SPECIAL_METHODS),
        "WITH_EXCEPT_START": plain(contexts.with_except_start_above_null, (0, 1), reads_below=5),
        # not interpreted
        "BUILD_INTERPOLATION": refused("template strings", lambda flags: (2 + (flags & 1), 1)),
        "BUILD_TEMPLATE": refused("template strings", (2, 1)),
    }
)
