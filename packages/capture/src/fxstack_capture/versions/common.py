"""The opcodes that mean the same in 3.11, 3.12 and 3.13. Most of them mean the same in 3.14."""

from __future__ import annotations

import operator
from types import MappingProxyType

from fxstack_capture.interpreter.handlers import (
    attributes,
    calling,
    containers,
    contexts,
    flow,
    generating,
    operators,
    patterns,
    raising,
    stack,
)
from fxstack_capture.interpreter.handlers.deferred import formatting
from fxstack_capture.interpreter.handlers.variables import imports, local_slots, names
from fxstack_capture.operator_protocol import ARITHMETIC, IN_PLACE
from fxstack_capture.versions.lowering import (
    backward,
    chosen,
    constant,
    fixed,
    forward,
    into,
    items,
    name,
    plain,
    refused,
)

BINARY_OPS = MappingProxyType(
    {number: fixed(operators.binary_op, op) for number, op in enumerate((*ARITHMETIC, *IN_PLACE))}
)
"""``NB_ADD`` and so on, in CPython's order (``opcode.h``)."""

OPCODES = MappingProxyType(
    {
        # stack
        "NOP": plain(stack.nop),
        "RESUME": plain(stack.nop),
        "POP_TOP": plain(stack.pop_top, (1, 0)),
        "PUSH_NULL": plain(stack.push_null),
        "COPY": plain(stack.copy),
        "SWAP": plain(stack.swap),
        "LOAD_CONST": constant(stack.load_const),
        # local variables and cells
        "LOAD_FAST": plain(local_slots.load_fast, (0, 1)),
        "STORE_FAST": plain(local_slots.store_fast),
        "DELETE_FAST": plain(local_slots.delete_fast),
        "MAKE_CELL": plain(local_slots.make_cell),
        "COPY_FREE_VARS": plain(local_slots.copy_free_vars),
        "LOAD_CLOSURE": plain(local_slots.load_closure),
        "LOAD_DEREF": plain(local_slots.load_deref, (0, 1)),
        "STORE_DEREF": plain(local_slots.store_deref, (1, 0)),
        "DELETE_DEREF": plain(local_slots.delete_deref, (0, 0)),
        # names
        "LOAD_NAME": name(names.load_name),
        "STORE_NAME": name(names.store_name),
        "DELETE_NAME": name(names.delete_name),
        "STORE_GLOBAL": name(names.store_global, (1, 0)),
        "DELETE_GLOBAL": name(names.delete_global, (0, 0)),
        "SETUP_ANNOTATIONS": plain(names.setup_annotations),
        "LOAD_BUILD_CLASS": plain(names.load_build_class, (0, 1)),
        "LOAD_ASSERTION_ERROR": plain(names.load_assertion_error, (0, 1)),
        # attributes
        "STORE_ATTR": name(attributes.store_attr, (2, 0)),
        "DELETE_ATTR": name(attributes.delete_attr, (1, 0)),
        # operators
        "BINARY_OP": chosen(BINARY_OPS, "binary operator", (2, 1)),
        "UNARY_NEGATIVE": fixed(operators.unary_op, operator.neg, (1, 1)),
        "UNARY_INVERT": fixed(operators.unary_op, operator.invert, (1, 1)),
        "UNARY_NOT": plain(operators.unary_not, (1, 1)),
        "IS_OP": plain(operators.is_op, (2, 1)),
        "CONTAINS_OP": plain(operators.contains_op, (2, 1)),
        "BINARY_SUBSCR": plain(operators.binary_subscr, (2, 1)),
        "STORE_SUBSCR": plain(operators.store_subscr, (3, 0)),
        "DELETE_SUBSCR": plain(operators.delete_subscr, (2, 0)),
        "GET_LEN": plain(operators.get_len, (1, 2)),
        # containers
        "BUILD_TUPLE": plain(containers.build_tuple, items),
        "BUILD_LIST": plain(containers.build_list, items),
        "BUILD_SET": plain(containers.build_set, items),
        "BUILD_MAP": plain(containers.build_map, lambda count: (2 * count, 1)),
        "BUILD_CONST_KEY_MAP": plain(containers.build_const_key_map, lambda count: (count + 1, 1)),
        "BUILD_SLICE": plain(containers.build_slice, items),
        "BUILD_STRING": plain(containers.build_string, items),
        "LIST_APPEND": plain(containers.list_append, into),
        "SET_ADD": plain(containers.set_add, into),
        "MAP_ADD": plain(containers.map_add, lambda depth: (depth + 2, depth)),
        "LIST_EXTEND": plain(containers.list_extend, into),
        "SET_UPDATE": plain(containers.set_update, into),
        "DICT_UPDATE": plain(containers.dict_update, into),
        "UNPACK_SEQUENCE": plain(containers.unpack_sequence, lambda count: (1, count)),
        "UNPACK_EX": plain(containers.unpack_ex, lambda counts: (1, (counts & 255) + 1 + (counts >> 8))),
        # flow
        "JUMP_FORWARD": forward(flow.jump),
        "JUMP_BACKWARD": backward(flow.jump),
        "JUMP_BACKWARD_NO_INTERRUPT": backward(flow.jump),
        "GET_ITER": plain(flow.get_iter, (1, 1)),
        "RETURN_VALUE": plain(flow.return_value),
        # calls and functions
        "CALL_FUNCTION_EX": plain(calling.call_function_ex, lambda flags: (3 + (flags & 1), 1)),
        # exceptions and with
        "RAISE_VARARGS": plain(raising.raise_varargs, lambda count: (count, 0)),
        "RERAISE": plain(raising.reraise),
        "PUSH_EXC_INFO": plain(raising.push_exc_info),
        "POP_EXCEPT": plain(raising.pop_except),
        "CHECK_EXC_MATCH": plain(raising.check_exc_match),
        "CHECK_EG_MATCH": plain(raising.check_eg_match),
        "BEFORE_WITH": plain(contexts.before_with, (1, 2)),
        "WITH_EXCEPT_START": plain(contexts.with_except_start, (0, 1), reads_below=4),
        # generators
        "RETURN_GENERATOR": plain(generating.return_generator),
        "YIELD_VALUE": plain(generating.yield_value),
        "GET_YIELD_FROM_ITER": plain(generating.get_yield_from_iter, (1, 1)),
        # match
        "MATCH_SEQUENCE": plain(patterns.match_sequence, (1, 2)),
        "MATCH_MAPPING": plain(patterns.match_mapping, (1, 2)),
        "MATCH_KEYS": plain(patterns.match_keys, (2, 3)),
        # imports
        "IMPORT_NAME": name(imports.import_name, (2, 1)),
        "IMPORT_FROM": name(imports.import_from, (1, 2)),
        # not interpreted
        "GET_AITER": refused("async for"),
        "GET_ANEXT": refused("async for"),
        "END_ASYNC_FOR": refused("async for"),
        "BEFORE_ASYNC_WITH": refused("async with"),
        "GET_AWAITABLE": refused("await"),
    }
)

FORMAT_VALUE = plain(formatting.format_value, lambda flags: (1 + bool(flags & 4), 1))
"""The row of FORMAT_VALUE (Python 3.11 and 3.12). Python 3.13 has three opcodes in its place."""
