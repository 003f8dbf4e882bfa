"""The opcodes of Python 3.13 that differ from the common table and from 3.12."""

from __future__ import annotations

from types import MappingProxyType

from fxstack_capture.interpreter.handlers import attributes, calling, containers, flow, operators, stack
from fxstack_capture.interpreter.handlers.deferred import formatting
from fxstack_capture.interpreter.handlers.variables import local_slots, names
from fxstack_capture.interpreter.program import Step
from fxstack_capture.operator_protocol import COMPARISONS
from fxstack_capture.versions import common
from fxstack_capture.versions.lowering import (
    Instruction,
    Opcode,
    call_effect,
    forward,
    into,
    name_or_method,
    plain,
    super_name,
    two_locals,
)
from fxstack_capture.versions.v312 import SINCE_312


def _compare(instruction: Instruction) -> Step:
    """Make the step of a comparison. Bit 4 of its argument asks for the result as a bool."""
    to_bool = instruction.oparg & 16
    handler = operators.compare_to_bool if to_bool else operators.binary_op
    return handler, COMPARISONS[instruction.oparg >> 5]


OPCODES = MappingProxyType(
    {
        **common.OPCODES,
        **SINCE_312,
        "LOAD_FAST_LOAD_FAST": two_locals(local_slots.load_fast_load_fast, (0, 2)),
        "STORE_FAST_LOAD_FAST": two_locals(local_slots.store_fast_load_fast),
        "STORE_FAST_STORE_FAST": two_locals(local_slots.store_fast_store_fast),
        "LOAD_GLOBAL": name_or_method(names.load_global, names.load_global_null_above, 0),
        "LOAD_ATTR": name_or_method(attributes.load_attr, attributes.load_method_null_above, 1),
        "LOAD_SUPER_ATTR": super_name(attributes.load_super_attr, attributes.load_super_method_null_above),
        "TO_BOOL": plain(operators.to_bool, (1, 1)),
        "COMPARE_OP": Opcode(_compare, (2, 1)),
        "DICT_MERGE": plain(containers.dict_merge_below(3), into, reads_below=3),
        "CONVERT_VALUE": plain(formatting.convert_value, (1, 1)),
        "FORMAT_SIMPLE": plain(formatting.format_simple, (1, 1)),
        "FORMAT_WITH_SPEC": plain(formatting.format_with_spec, (2, 1)),
        # At the end of the iterator, CPython skips END_FOR and the POP_TOP after it.
        "FOR_ITER": forward(flow.for_iter, (1, 2), skip=2),
        "END_FOR": plain(stack.pop_top),
        "CALL": plain(calling.call, call_effect),
        "CALL_KW": plain(calling.call_kw, lambda count: (count + 3, 1)),
        "MAKE_FUNCTION": plain(calling.make_plain_function, (1, 1)),
        "SET_FUNCTION_ATTRIBUTE": plain(calling.set_function_attribute, (2, 1)),
    }
)
