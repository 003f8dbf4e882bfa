"""The opcodes of Python 3.11 that differ from the common table."""

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
)
from fxstack_capture.interpreter.handlers.variables import names
from fxstack_capture.operator_protocol import COMPARISONS
from fxstack_capture.versions import common
from fxstack_capture.versions.lowering import (
    backward,
    call,
    chosen,
    fixed,
    forward,
    into,
    name,
    name_or_method,
    plain,
    refused,
)

_COMPARE = {number: fixed(operators.binary_op, op) for number, op in enumerate(COMPARISONS)}

OPCODES = MappingProxyType(
    {
        **common.OPCODES,
        "LOAD_GLOBAL": name_or_method(names.load_global, names.load_global_null_below, 0),
        "LOAD_CLASSDEREF": plain(names.load_classderef),
        "LOAD_ATTR": name(attributes.load_attr, (1, 1)),
        "LOAD_METHOD": name(attributes.load_method_null_below, (1, 2), value_only="LOAD_ATTR"),
        "UNARY_POSITIVE": fixed(operators.unary_op, operator.pos, (1, 1)),
        "COMPARE_OP": chosen(_COMPARE, "comparison", (2, 1)),
        "LIST_TO_TUPLE": plain(containers.list_to_tuple, (1, 1)),
        "DICT_MERGE": plain(containers.dict_merge_below(2), into, reads_below=2),
        "FORMAT_VALUE": common.FORMAT_VALUE,
        "MATCH_CLASS": plain(patterns.match_class_called("type"), (3, 1)),
        "POP_JUMP_FORWARD_IF_TRUE": forward(flow.pop_jump_if_true, (1, 0)),
        "POP_JUMP_FORWARD_IF_FALSE": forward(flow.pop_jump_if_false, (1, 0)),
        "POP_JUMP_FORWARD_IF_NONE": forward(flow.pop_jump_if_none, (1, 0)),
        "POP_JUMP_FORWARD_IF_NOT_NONE": forward(flow.pop_jump_if_not_none, (1, 0)),
        "POP_JUMP_BACKWARD_IF_TRUE": backward(flow.pop_jump_if_true, (1, 0)),
        "POP_JUMP_BACKWARD_IF_FALSE": backward(flow.pop_jump_if_false, (1, 0)),
        "POP_JUMP_BACKWARD_IF_NONE": backward(flow.pop_jump_if_none, (1, 0)),
        "POP_JUMP_BACKWARD_IF_NOT_NONE": backward(flow.pop_jump_if_not_none, (1, 0)),
        "JUMP_IF_TRUE_OR_POP": forward(flow.jump_if_true_or_pop, (1, 0), leaves_jumping=1),
        "JUMP_IF_FALSE_OR_POP": forward(flow.jump_if_false_or_pop, (1, 0), leaves_jumping=1),
        "FOR_ITER": forward(flow.for_iter, (1, 2)),
        "CALL": call(calling.call, calling.call_with_names),
        "MAKE_FUNCTION": plain(calling.make_function, (1, 1)),
        "PREP_RERAISE_STAR": plain(raising.prep_reraise_star),
        "SEND": forward(generating.send_and_drop_receiver),
        "ASYNC_GEN_WRAP": refused("async generators"),
        "IMPORT_STAR": refused("import *"),
        "PRINT_EXPR": refused("printing of expression statements", (1, 0)),
    }
)
