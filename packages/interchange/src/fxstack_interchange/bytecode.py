"""Properties of CPython's opcodes, for all code that reads bytecode.

``kind_of`` returns the properties of an opcode. Only this module, ``fxstack_capture.bytecode`` and
``fxstack_capture.versions`` may name an opcode (``docs/house.py``). So the properties of a new opcode are
written once, here.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from enum import Flag, auto
from itertools import takewhile
from types import CodeType, MappingProxyType
from typing import Final, NamedTuple


class Kind(Flag):
    """Properties of an opcode. An opcode may have several, or none."""

    INERT = auto()
    """The opcode changes neither variables nor the stack, except that it may replace a value by its truth value."""
    LOADS_CONSTANT = auto()
    BUILDS = auto()
    """The opcode makes a list, tuple, set or dictionary of stack values."""
    COPIES = auto()
    POPS = auto()
    NEGATES = auto()
    READS_LOCAL = auto()
    """The effect of the opcode depends on whether a local variable is bound. ``del`` reads and binds."""
    BINDS_LOCAL = auto()
    READS_CELL = auto()
    BINDS_CELL = auto()
    READS_GLOBAL = auto()
    BINDS_GLOBAL = auto()
    BINDS_NAME = auto()
    """The opcode binds a name in the namespace of a class body or of ``exec``."""
    READS_ATTRIBUTE = auto()
    BINDS_ATTRIBUTE = auto()
    READS_SUPER = auto()
    BINDS_ITEM = auto()
    IMPORTS = auto()
    BUILDS_CLASS = auto()
    CALLS = auto()
    JUMPS = auto()
    """The opcode always jumps."""
    JUMPS_IF_TRUE = auto()
    JUMPS_IF_FALSE = auto()
    KEEPS_CONDITION = auto()
    """A conditional jump that leaves its condition on the stack when it jumps."""
    FORKS = auto()
    """The opcode enters a ``with`` block, or it continues at one of several places without testing the truth
    of a value.
    """
    ITERATES = auto()
    DELEGATES = auto()
    """The opcode sends a value to the iterator of a ``yield from``."""
    KEEPS_BELOW = auto()
    """The opcode calls a method and leaves a second value below the result: an iterator, ``__exit__``, a container."""
    STARTS = auto()
    """The first opcode of a function, and the first opcode after a ``yield``."""
    STARTS_GENERATOR = auto()
    RETURNS = auto()
    YIELDS = auto()
    RAISES = auto()
    RERAISES = auto()
    UNKNOWN = auto()
    """The opcode belongs to a version of Python that this table does not know."""


_OPCODES: Final = (
    (Kind.INERT, "CACHE EXTENDED_ARG NOP NOT_TAKEN PRECALL RESUME TO_BOOL"),
    (Kind.LOADS_CONSTANT, "LOAD_CONST LOAD_SMALL_INT RETURN_CONST"),
    (Kind.BUILDS, "BUILD_LIST BUILD_MAP BUILD_SET BUILD_TUPLE"),
    (Kind.COPIES, "COPY"),
    (Kind.POPS, "POP_TOP"),
    (Kind.NEGATES, "UNARY_NOT"),
    (Kind.READS_LOCAL, "LOAD_FAST LOAD_FAST_BORROW LOAD_FAST_CHECK LOAD_FAST_AND_CLEAR DELETE_FAST"),
    (Kind.BINDS_LOCAL, "STORE_FAST LOAD_FAST_AND_CLEAR DELETE_FAST"),
    (Kind.READS_CELL, "LOAD_CLASSDEREF LOAD_DEREF LOAD_FROM_DICT_OR_DEREF"),
    (Kind.BINDS_CELL, "STORE_DEREF DELETE_DEREF"),
    (Kind.READS_GLOBAL, "LOAD_FROM_DICT_OR_GLOBALS LOAD_GLOBAL LOAD_NAME"),
    (Kind.BINDS_GLOBAL, "STORE_GLOBAL DELETE_GLOBAL"),
    (Kind.BINDS_NAME, "STORE_NAME DELETE_NAME SETUP_ANNOTATIONS"),
    (Kind.READS_ATTRIBUTE, "LOAD_ATTR LOAD_METHOD"),
    (Kind.BINDS_ATTRIBUTE, "STORE_ATTR DELETE_ATTR"),
    (Kind.READS_SUPER, "LOAD_SUPER_ATTR"),
    (Kind.BINDS_ITEM, "STORE_SUBSCR STORE_SLICE DELETE_SUBSCR"),
    (Kind.IMPORTS, "IMPORT_NAME IMPORT_STAR"),
    (Kind.BUILDS_CLASS, "LOAD_BUILD_CLASS"),
    (Kind.CALLS, "CALL CALL_FUNCTION_EX CALL_KW PRECALL"),
    (Kind.JUMPS, "JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT JUMP_FORWARD"),
    (Kind.JUMPS_IF_TRUE, "POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_IF_TRUE"),
    (Kind.JUMPS_IF_FALSE, "POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_FORWARD_IF_FALSE POP_JUMP_IF_FALSE"),
    (Kind.JUMPS_IF_TRUE | Kind.KEEPS_CONDITION, "JUMP_IF_TRUE_OR_POP"),
    (Kind.JUMPS_IF_FALSE | Kind.KEEPS_CONDITION, "JUMP_IF_FALSE_OR_POP"),
    (Kind.FORKS, "POP_JUMP_BACKWARD_IF_NONE POP_JUMP_FORWARD_IF_NONE POP_JUMP_IF_NONE"),
    (Kind.FORKS, "POP_JUMP_BACKWARD_IF_NOT_NONE POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_IF_NOT_NONE"),
    (Kind.FORKS, "BEFORE_ASYNC_WITH BEFORE_WITH END_ASYNC_FOR FOR_ITER GET_AWAITABLE LOAD_SPECIAL SEND"),
    (Kind.ITERATES, "FOR_ITER"),
    (Kind.DELEGATES, "SEND"),
    (Kind.KEEPS_BELOW, "BEFORE_WITH FOR_ITER GET_LEN"),
    (Kind.STARTS, "RESUME"),
    (Kind.STARTS_GENERATOR, "RETURN_GENERATOR"),
    (Kind.RETURNS, "RETURN_CONST RETURN_VALUE"),
    (Kind.YIELDS, "YIELD_VALUE"),
    (Kind.RAISES, "RAISE_VARARGS"),
    (Kind.RERAISES, "RERAISE"),
    # No reader asks about these opcodes. Where a pair of local variables matters, it is read as two opcodes.
    (
        Kind(0),
        """
        ASYNC_GEN_WRAP BINARY_OP BINARY_SLICE BINARY_SUBSCR BUILD_CONST_KEY_MAP BUILD_INTERPOLATION
        BUILD_SLICE BUILD_STRING BUILD_TEMPLATE CALL_INTRINSIC_1 CALL_INTRINSIC_2 CHECK_EG_MATCH
        CHECK_EXC_MATCH CLEANUP_THROW COMPARE_OP CONTAINS_OP CONVERT_VALUE COPY_FREE_VARS DICT_MERGE
        DICT_UPDATE END_FOR END_SEND FORMAT_SIMPLE FORMAT_VALUE FORMAT_WITH_SPEC GET_AITER GET_ANEXT
        GET_ITER GET_YIELD_FROM_ITER IMPORT_FROM IS_OP KW_NAMES LIST_APPEND LIST_EXTEND
        LIST_TO_TUPLE LOAD_ASSERTION_ERROR LOAD_CLOSURE LOAD_COMMON_CONSTANT
        LOAD_FAST_BORROW_LOAD_FAST_BORROW LOAD_FAST_LOAD_FAST LOAD_LOCALS MAKE_CELL MAKE_FUNCTION
        MAP_ADD MATCH_CLASS MATCH_KEYS MATCH_MAPPING MATCH_SEQUENCE POP_EXCEPT POP_ITER
        PREP_RERAISE_STAR PRINT_EXPR PUSH_EXC_INFO PUSH_NULL SET_ADD SET_FUNCTION_ATTRIBUTE
        SET_UPDATE STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST SWAP UNARY_INVERT UNARY_NEGATIVE
        UNARY_POSITIVE UNPACK_EX UNPACK_SEQUENCE WITH_EXCEPT_START
        """,
    ),
)


def _kinds() -> dict[str, Kind]:
    """Return the table of opcodes, by name: the union of the kinds under which ``_OPCODES`` lists the opcode."""
    kinds: dict[str, Kind] = {}
    for kind, names in _OPCODES:
        for name in names.split():
            kinds[name] = kinds.get(name, Kind(0)) | kind
    return kinds


KINDS: Final = MappingProxyType(_kinds())
"""The properties of each opcode of every supported Python, by name."""


def opcodes_of(kinds: Kind) -> frozenset[str]:
    """Return the names of the opcodes that have any of ``kinds``."""
    return frozenset(name for name, kind in KINDS.items() if kind & kinds)


def kind_of(opcode: str) -> Kind:
    """Return the properties of an opcode; ``Kind.UNKNOWN`` for an opcode without a row."""
    return KINDS.get(opcode, Kind.UNKNOWN)


class NameLoad(NamedTuple):
    """A load of a global name or of a variable in a cell, and the attribute loads that follow directly."""

    kind: Kind
    name: str
    attributes: tuple[str, ...]


def name_loads(code: CodeType) -> Iterator[NameLoad]:
    """Yield each load of a global name and of a variable in a cell. Code objects inside of ``code`` are left out."""
    instructions = list(dis.get_instructions(code))
    for number, instruction in enumerate(instructions):
        kind = kind_of(instruction.opname) & (Kind.READS_GLOBAL | Kind.READS_CELL)
        if kind:
            loads = takewhile(_loads_attribute, instructions[number + 1 :])
            yield NameLoad(kind, instruction.argval, tuple(load.argval for load in loads))


def _loads_attribute(instruction: dis.Instruction) -> bool:
    return Kind.READS_ATTRIBUTE in kind_of(instruction.opname)
