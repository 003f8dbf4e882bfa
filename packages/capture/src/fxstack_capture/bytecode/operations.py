"""What the one operation that ends a graph takes from the stack and leaves there: a table by name.

Names that only some Python versions have simply never occur in the others.
"""

from __future__ import annotations

import dis
from collections.abc import Callable
from dataclasses import dataclass

from fxstack_capture.bytecode.assemble import Body, Op
from fxstack_capture.bytecode.calls import NULL_AFTER, NULL_IN_WITH
from fxstack_capture.emit.errors import CannotResumeError

_HAS_LOAD_METHOD = dis.opmap.get("LOAD_METHOD", 256) < 256
"""3.11; later a pseudo operation."""


@dataclass(frozen=True, slots=True)
class Exit:
    """One way out of an operation: what it leaves (True: a NULL), and the operation that comes next."""

    results: tuple[bool, ...]
    next: Op
    jump: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One operation with its prefixes, changed so that it leaves no NULL; how much it takes; its exits.

    ``passed``: names of the operations at the end of a loop that FOR_ITER passes over. ``looks``: how many
    values below those that it takes it looks at.
    """

    ops: tuple[Op, ...]
    takes: int
    exits: tuple[Exit, ...]
    passed: tuple[str, ...] = ()
    looks: int = 0


_CALLABLE = (False, True) if NULL_AFTER else (True, False)
_PREFIXES = frozenset({"KW_NAMES", "PRECALL"})

# (takes, leaves) where the argument does not matter.
_FIXED: dict[str, tuple[int, int]] = {
    "BINARY_OP": (2, 1),
    "BINARY_SUBSCR": (2, 1),
    "BINARY_SLICE": (3, 1),
    "STORE_SUBSCR": (3, 0),
    "STORE_SLICE": (4, 0),
    "DELETE_SUBSCR": (2, 0),
    "UNARY_POSITIVE": (1, 1),
    "UNARY_NEGATIVE": (1, 1),
    "UNARY_NOT": (1, 1),
    "UNARY_INVERT": (1, 1),
    "TO_BOOL": (1, 1),
    "COMPARE_OP": (2, 1),
    "CONTAINS_OP": (2, 1),
    "IS_OP": (2, 1),
    "STORE_ATTR": (2, 0),
    "DELETE_ATTR": (1, 0),
    "STORE_GLOBAL": (1, 0),
    "DELETE_GLOBAL": (0, 0),
    "LOAD_DEREF": (0, 1),
    "STORE_DEREF": (1, 0),
    "DELETE_DEREF": (0, 0),
    "GET_ITER": (1, 1),
    "GET_YIELD_FROM_ITER": (1, 1),
    "GET_LEN": (1, 2),
    "MATCH_MAPPING": (1, 2),
    "MATCH_SEQUENCE": (1, 2),
    "MATCH_KEYS": (2, 3),
    "MATCH_CLASS": (3, 1),
    "LIST_TO_TUPLE": (1, 1),
    "IMPORT_NAME": (2, 1),
    "IMPORT_FROM": (1, 2),
    "LOAD_BUILD_CLASS": (0, 1),
    "LOAD_ASSERTION_ERROR": (0, 1),
    "BEFORE_WITH": (1, 2),
    "CALL_INTRINSIC_1": (1, 1),
    "CALL_INTRINSIC_2": (2, 1),
    "FORMAT_SIMPLE": (1, 1),
    "FORMAT_WITH_SPEC": (2, 1),
    "CONVERT_VALUE": (1, 1),
    "POP_TOP": (1, 0),
    "POP_ITER": (1, 0),
    "BUILD_TEMPLATE": (2, 1),
    "PRINT_EXPR": (1, 0),
    "MAKE_FUNCTION": (1, 1),
    "SET_FUNCTION_ATTRIBUTE": (2, 1),
}

# (takes, leaves) as functions of the argument.
_BY_ARGUMENT: dict[str, Callable[[int], tuple[int, int]]] = {
    "CALL": lambda arg: (arg + 2, 1),
    "CALL_KW": lambda arg: (arg + 3, 1),
    "CALL_FUNCTION_EX": lambda arg: (4 if NULL_IN_WITH else 3 + (arg & 1), 1),
    "BUILD_INTERPOLATION": lambda arg: (2 + (arg & 1), 1),
    "RAISE_VARARGS": lambda arg: (arg, 0),
    "UNPACK_SEQUENCE": lambda arg: (1, arg),
    "UNPACK_EX": lambda arg: (1, (arg & 255) + 1 + (arg >> 8)),
    "LIST_APPEND": lambda arg: (arg + 1, arg),
    "SET_ADD": lambda arg: (arg + 1, arg),
    "MAP_ADD": lambda arg: (arg + 2, arg),
    "LIST_EXTEND": lambda arg: (arg + 1, arg),
    "SET_UPDATE": lambda arg: (arg + 1, arg),
    "DICT_UPDATE": lambda arg: (arg + 1, arg),
    "DICT_MERGE": lambda arg: (arg + 1, arg),
    "BUILD_MAP": lambda arg: (2 * arg, 1),
    "BUILD_CONST_KEY_MAP": lambda arg: (arg + 1, 1),
    "BUILD_SET": lambda arg: (arg, 1),
    "BUILD_LIST": lambda arg: (arg, 1),
    "BUILD_TUPLE": lambda arg: (arg, 1),
    "BUILD_STRING": lambda arg: (arg, 1),
    "BUILD_SLICE": lambda arg: (arg, 1),
    "FORMAT_VALUE": lambda arg: (1 + bool(arg & 4), 1),
}

_METHOD_BIT = {"LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 3, "LOAD_GLOBAL": 0}
"""Operations whose lowest argument bit asks for a NULL (or receiver) beside the value: what they take."""

_LOOKS = {"DICT_MERGE": 2 + NULL_AFTER}
"""What lies below: the positional arguments and the callable, which the error names, with the NULL between them since 3.13."""

_KEEPS_WHEN_JUMPING = frozenset({"JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP"})


def step_at(body: Body, index: int) -> Step:
    """The whole operation at ``index`` of ``body.ops``, with its exits."""
    end = index
    while body.ops[end].name in _PREFIXES:
        end += 1
    group = tuple(body.ops[index : end + 1])
    op = group[-1]
    if op.target is not None:
        return _jump(body, group, end)
    following = body.ops[end + 1] if end + 1 < len(body.ops) else op
    if op.name == "LOAD_METHOD":
        plain = Op("LOAD_ATTR", op.arg, None, op.position, op.offset)
        return Step((plain,), 1, (Exit(_CALLABLE, following),))
    if op.name in _METHOD_BIT and not (op.name == "LOAD_ATTR" and _HAS_LOAD_METHOD):
        plain = Op(op.name, op.arg & ~1, None, op.position, op.offset)
        results = _CALLABLE if op.arg & 1 else (False,)
        return Step((plain,), _METHOD_BIT[op.name], (Exit(results, following),))
    if op.name == "WITH_EXCEPT_START":
        return Step(group, 0, (Exit((False,), following),), looks=4 + NULL_IN_WITH)
    takes, leaves = _effect(op)
    looks = _LOOKS.get(op.name, 0)
    return Step(group, takes, (Exit((False,) * leaves, following),), looks=looks)


def _effect(op: Op) -> tuple[int, int]:
    if op.name == "LOAD_ATTR":
        return 1, 1
    by_argument = _BY_ARGUMENT.get(op.name)
    if by_argument is not None:
        return by_argument(op.arg)
    fixed = _FIXED.get(op.name)
    if fixed is None:
        raise CannotResumeError(f"the operation {op.name} cannot be run on its own")
    return fixed


def _jump(body: Body, group: tuple[Op, ...], end: int) -> Step:
    op = group[-1]
    following, target = body.ops[end + 1], op.target
    assert target is not None
    if op.name == "FOR_ITER":
        return _for_iter(body, group, following, target)
    if not op.name.startswith(("POP_JUMP", "JUMP_IF")):
        raise CannotResumeError(f"the operation {op.name} cannot be run on its own")
    kept = (False,) if op.name in _KEEPS_WHEN_JUMPING else ()
    return Step(group, 1, (Exit((), following), Exit(kept, target, jump=True)))


def _for_iter(body: Body, group: tuple[Op, ...], following: Op, target: Op) -> Step:
    """When the loop ends, FOR_ITER has dropped the iterator and passed over the END_FOR of newer versions."""
    after = first = body.ops.index(target)
    if body.ops[after].name == "END_FOR":
        after += 1
        if NULL_AFTER and body.ops[after].name in {"POP_TOP", "POP_ITER"}:
            after += 1
    passed = tuple(op.name for op in body.ops[first:after])
    exits = (Exit((False, False), following), Exit((), body.ops[after], jump=True))
    return Step(group, 1, exits, passed)
