"""The properties of opcodes agree with the standard library, and each opcode of this Python has some."""

import dis

import pytest

from fxstack_interchange.bytecode import KINDS, Kind, kind_of, name_loads, opcodes_of

PSEUDO = frozenset(
    """RESERVED INTERPRETER_EXIT EXIT_INIT_CHECK ENTER_EXECUTOR ANNOTATIONS_PLACEHOLDER JUMP JUMP_IF_FALSE JUMP_IF_TRUE
    JUMP_NO_INTERRUPT POP_BLOCK SETUP_CLEANUP SETUP_FINALLY SETUP_WITH STORE_FAST_MAYBE_NULL LOAD_SUPER_METHOD
    LOAD_ZERO_SUPER_METHOD LOAD_ZERO_SUPER_ATTR""".split()
)
"""What the compiler alone uses, and what the interpreter itself runs."""

LOCAL = Kind.READS_LOCAL | Kind.BINDS_LOCAL
CELL = Kind.READS_CELL | Kind.BINDS_CELL
NAME = Kind.READS_GLOBAL | Kind.BINDS_GLOBAL | Kind.READS_ATTRIBUTE | Kind.BINDS_ATTRIBUTE | Kind.READS_SUPER
JUMP = Kind.JUMPS | Kind.JUMPS_IF_TRUE | Kind.JUMPS_IF_FALSE | Kind.ITERATES | Kind.DELEGATES


def test_every_opcode_of_this_python_has_a_row():
    specialized = set(getattr(dis, "_all_opmap", {})) - set(dis.opmap)
    real = {name for name in dis.opmap if not name.startswith("INSTRUMENTED")}
    assert real - specialized - PSEUDO - set(KINDS) == set()


def test_an_opcode_without_a_row_is_unknown():
    assert kind_of("LOAD_EVERYTHING") is Kind.UNKNOWN


@pytest.mark.parametrize(
    ("kinds", "numbers"),
    [
        (LOCAL, dis.haslocal),
        (CELL, [*dis.hasfree, dis.opmap["LOAD_DEREF"]]),  # CPython 3.14 leaves LOAD_DEREF out
        (NAME, dis.hasname),
        (JUMP, dis.hasjrel),
        (Kind.LOADS_CONSTANT, [*dis.hasconst, dis.opmap.get("LOAD_SMALL_INT")]),
    ],
    ids=["local", "cell", "name", "jump", "constant"],
)
def test_kinds_agree_with_the_standard_library(kinds, numbers):
    assert {dis.opmap[name] for name in opcodes_of(kinds) & set(dis.opmap)} - {*numbers} == set()


def test_loads_of_names_come_with_their_attributes():
    offset = 1

    def program(x):
        return dis.hasname.append(x.y + offset)

    loads = [tuple(load) for load in name_loads(program.__code__)]
    assert loads == [(Kind.READS_GLOBAL, "dis", ("hasname", "append")), (Kind.READS_CELL, "offset", ())]
