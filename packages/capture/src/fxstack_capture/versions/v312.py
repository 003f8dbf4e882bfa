"""The opcodes of Python 3.12 that differ from the common table."""

from __future__ import annotations

import operator
from types import MappingProxyType

from fxstack_capture.interpreter.handlers import (
    attributes,
    calling,
    containers,
    flow,
    generating,
    operators,
    patterns,
    raising,
    stack,
)
from fxstack_capture.interpreter.handlers.variables import local_slots, names
from fxstack_capture.interpreter.program import Step
from fxstack_capture.operator_protocol import COMPARISONS
from fxstack_capture.versions import common
from fxstack_capture.versions.lowering import (
    Instruction,
    Opcode,
    call,
    chosen,
    constant,
    fixed,
    forward,
    into,
    name,
    name_or_method,
    plain,
    refused,
    super_name,
)

INTRINSICS_1 = MappingProxyType(
    {
        1: refused("printing of expression statements"),
        2: refused("import *"),
        3: fixed(generating.convert_stop_iteration),
        4: refused("async generators"),
        5: fixed(operators.unary_op, operator.pos),
        6: fixed(containers.list_to_tuple),
        7: refused("type parameters"),
        8: refused("type parameters"),
        9: refused("type parameters"),
        10: fixed(calling.subscript_generic),
        11: refused("type aliases"),
    }
)
"""The operations of CALL_INTRINSIC_1 by argument (``pycore_intrinsics.h``). Python 3.13 has the same."""

INTRINSICS_2 = MappingProxyType(
    {
        1: fixed(raising.prep_reraise_star),
        2: refused("type parameters"),
        3: refused("type parameters"),
        4: fixed(calling.set_function_type_params),
        5: refused("type parameters"),
    }
)
"""The operations of CALL_INTRINSIC_2 by argument. Python 3.13 added the argument 5."""

SINCE_312 = MappingProxyType(
    {
        "LOAD_FAST_CHECK": plain(local_slots.load_fast, (0, 1)),
        "LOAD_FAST_AND_CLEAR": plain(local_slots.load_fast_and_clear),
        "LOAD_LOCALS": plain(names.load_locals),
        "LOAD_FROM_DICT_OR_DEREF": plain(names.load_from_dict_or_deref),
        "LOAD_FROM_DICT_OR_GLOBALS": name(names.load_from_dict_or_globals),
        "RETURN_CONST": constant(flow.return_const),
        "POP_JUMP_IF_TRUE": forward(flow.pop_jump_if_true, (1, 0)),
        "POP_JUMP_IF_FALSE": forward(flow.pop_jump_if_false, (1, 0)),
        "POP_JUMP_IF_NONE": forward(flow.pop_jump_if_none, (1, 0)),
        "POP_JUMP_IF_NOT_NONE": forward(flow.pop_jump_if_not_none, (1, 0)),
        "BINARY_SLICE": plain(operators.binary_slice, (3, 1)),
        "STORE_SLICE": plain(operators.store_slice, (4, 0)),
        "SEND": forward(generating.send),
        "MATCH_CLASS": plain(patterns.match_class_called("class"), (3, 1)),
        "END_SEND": plain(stack.pop_second),
        "CLEANUP_THROW": plain(generating.cleanup_throw),
        "CALL_INTRINSIC_1": chosen(INTRINSICS_1, "intrinsic function", (1, 1)),
        "CALL_INTRINSIC_2": chosen(INTRINSICS_2, "intrinsic function of two arguments", (2, 1)),
    }
)
"""Opcodes that are new in 3.12 and the same in 3.13."""


def _compare(instruction: Instruction) -> Step:
    """Make the step of a comparison. The low four bits of its argument are a mask for CPython's
    specialisation.
    """
    return operators.binary_op, COMPARISONS[instruction.oparg >> 4]


OPCODES = MappingProxyType(
    {
        **common.OPCODES,
        **SINCE_312,
        "LOAD_GLOBAL": name_or_method(names.load_global, names.load_global_null_below, 0),
        "LOAD_ATTR": name_or_method(attributes.load_attr, attributes.load_method_null_below, 1),
        "LOAD_SUPER_ATTR": super_name(attributes.load_super_attr, attributes.load_super_method_null_below),
        "COMPARE_OP": Opcode(_compare, (2, 1)),
        "DICT_MERGE": plain(containers.dict_merge_below(2), into, reads_below=2),
        "FORMAT_VALUE": common.FORMAT_VALUE,
        # At the end of the iterator, CPython skips the END_FOR at the target.
        "FOR_ITER": forward(flow.for_iter, (1, 2), skip=1),
        "END_FOR": plain(stack.pop_two),
        "CALL": call(calling.call, calling.call_with_names),
        "MAKE_FUNCTION": plain(calling.make_function, (1, 1)),
    }
)
