"""The opcodes that mean the same in 3.11, 3.12 and 3.13; most of them in 3.14, too."""

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
from fxstack_capture.versions.lowering import backward, chosen, constant, fixed, forward, name, plain, refused

BINARY_OPS = MappingProxyType(
    {number: fixed(operators.binary_op, op) for number, op in enumerate((*ARITHMETIC, *IN_PLACE))}
)
"""``NB_ADD`` and so on, in CPython's order (``opcode.h``)."""

OPCODES = MappingProxyType(
    {
        # stack
        "NOP": plain(stack.nop),
        "RESUME": plain(stack.nop),
        "POP_TOP": plain(stack.pop_top),
        "PUSH_NULL": plain(stack.push_null),
        "COPY": plain(stack.copy),
        "SWAP": plain(stack.swap),
        "LOAD_CONST": constant(stack.load_const),
        # local variables and cells
        "LOAD_FAST": plain(local_slots.load_fast),
        "STORE_FAST": plain(local_slots.store_fast),
        "DELETE_FAST": plain(local_slots.delete_fast),
        "MAKE_CELL": plain(local_slots.make_cell),
        "COPY_FREE_VARS": plain(local_slots.copy_free_vars),
        "LOAD_CLOSURE": plain(local_slots.load_closure),
        "LOAD_DEREF": plain(local_slots.load_deref),
        "STORE_DEREF": plain(local_slots.store_deref),
        "DELETE_DEREF": plain(local_slots.delete_deref),
        # names
        "LOAD_NAME": name(names.load_name),
        "STORE_NAME": name(names.store_name),
        "DELETE_NAME": name(names.delete_name),
        "STORE_GLOBAL": name(names.store_global),
        "DELETE_GLOBAL": name(names.delete_global),
        "SETUP_ANNOTATIONS": plain(names.setup_annotations),
        "LOAD_BUILD_CLASS": plain(names.load_build_class),
        "LOAD_ASSERTION_ERROR": plain(names.load_assertion_error),
        # attributes
        "STORE_ATTR": name(attributes.store_attr),
        "DELETE_ATTR": name(attributes.delete_attr),
        # operators
        "BINARY_OP": chosen(BINARY_OPS, "binary operator"),
        "UNARY_NEGATIVE": fixed(operators.unary_op, operator.neg),
        "UNARY_INVERT": fixed(operators.unary_op, operator.invert),
        "UNARY_NOT": plain(operators.unary_not),
        "IS_OP": plain(operators.is_op),
        "CONTAINS_OP": plain(operators.contains_op),
        "BINARY_SUBSCR": plain(operators.binary_subscr),
        "STORE_SUBSCR": plain(operators.store_subscr),
        "DELETE_SUBSCR": plain(operators.delete_subscr),
        "GET_LEN": plain(operators.get_len),
        # containers
        "BUILD_TUPLE": plain(containers.build_tuple),
        "BUILD_LIST": plain(containers.build_list),
        "BUILD_SET": plain(containers.build_set),
        "BUILD_MAP": plain(containers.build_map),
        "BUILD_CONST_KEY_MAP": plain(containers.build_const_key_map),
        "BUILD_SLICE": plain(containers.build_slice),
        "BUILD_STRING": plain(containers.build_string),
        "LIST_APPEND": plain(containers.list_append),
        "SET_ADD": plain(containers.set_add),
        "MAP_ADD": plain(containers.map_add),
        "LIST_EXTEND": plain(containers.list_extend),
        "SET_UPDATE": plain(containers.set_update),
        "DICT_UPDATE": plain(containers.dict_update),
        "UNPACK_SEQUENCE": plain(containers.unpack_sequence),
        "UNPACK_EX": plain(containers.unpack_ex),
        # flow
        "JUMP_FORWARD": forward(flow.jump),
        "JUMP_BACKWARD": backward(flow.jump),
        "JUMP_BACKWARD_NO_INTERRUPT": backward(flow.jump),
        "GET_ITER": plain(flow.get_iter),
        "RETURN_VALUE": plain(flow.return_value),
        # calls and functions
        "CALL_FUNCTION_EX": plain(calling.call_function_ex),
        # exceptions and with
        "RAISE_VARARGS": plain(raising.raise_varargs),
        "RERAISE": plain(raising.reraise),
        "PUSH_EXC_INFO": plain(raising.push_exc_info),
        "POP_EXCEPT": plain(raising.pop_except),
        "CHECK_EXC_MATCH": plain(raising.check_exc_match),
        "CHECK_EG_MATCH": plain(raising.check_eg_match),
        "BEFORE_WITH": plain(contexts.before_with),
        "WITH_EXCEPT_START": plain(contexts.with_except_start),
        # generators
        "RETURN_GENERATOR": plain(generating.return_generator),
        "YIELD_VALUE": plain(generating.yield_value),
        "GET_YIELD_FROM_ITER": plain(generating.get_yield_from_iter),
        # match
        "MATCH_SEQUENCE": plain(patterns.match_sequence),
        "MATCH_MAPPING": plain(patterns.match_mapping),
        "MATCH_KEYS": plain(patterns.match_keys),
        # imports
        "IMPORT_NAME": name(imports.import_name),
        "IMPORT_FROM": name(imports.import_from),
        # not interpreted
        "GET_AITER": refused("async for"),
        "GET_ANEXT": refused("async for"),
        "END_ASYNC_FOR": refused("async for"),
        "BEFORE_ASYNC_WITH": refused("async with"),
        "GET_AWAITABLE": refused("await"),
    }
)

FORMAT_VALUE = plain(formatting.format_value)
"""3.11 and 3.12; split in three in 3.13."""
