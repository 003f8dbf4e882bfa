"""What is known of the Pythons: each opcode that a version compiles to has a row, and others are refused with their name."""

import dis
import sys

import pytest

from fxstack_capture.versions.instruction_sets import _SUPPORTED, instruction_set, refuse_free_threading
from fxstack_interchange.bytecode import KINDS

NOT_COMPILED = frozenset(
    """CACHE EXTENDED_ARG RESERVED INTERPRETER_EXIT EXIT_INIT_CHECK ENTER_EXECUTOR KW_NAMES PRECALL
    ANNOTATIONS_PLACEHOLDER JUMP JUMP_IF_FALSE JUMP_IF_TRUE JUMP_NO_INTERRUPT POP_BLOCK SETUP_CLEANUP SETUP_FINALLY
    SETUP_WITH STORE_FAST_MAYBE_NULL LOAD_METHOD LOAD_SUPER_METHOD LOAD_ZERO_SUPER_METHOD LOAD_ZERO_SUPER_ATTR
    LOAD_CLOSURE""".split()
)
"""Prefixes, pseudo instructions of the compiler, and what the interpreter itself runs."""


def compiled_opcodes():
    specialized = set(getattr(dis, "_all_opmap", {})) - set(dis.opmap)
    return {
        name
        for name in dis.opmap
        if not name.startswith("INSTRUMENTED") and name not in NOT_COMPILED | specialized
    }


def test_every_opcode_of_this_python_has_a_row():
    assert compiled_opcodes() - set(_SUPPORTED[sys.version_info[:2]]) <= set()


def test_no_row_is_of_another_python():
    known = set(dis.opmap)
    assert set(_SUPPORTED[sys.version_info[:2]]) - known <= {"LOAD_METHOD"}


@pytest.mark.parametrize("version", _SUPPORTED)
def test_every_row_has_properties(version):
    assert set(_SUPPORTED[version]) - set(KINDS) == set()


@pytest.mark.parametrize("version", [(3, 10), (3, 15)])
def test_unknown_pythons_are_named(version):
    with pytest.raises(
        RuntimeError, match=r"Python 3\.1[05] is not supported: its bytecode.*Use one of 3\.11"
    ):
        instruction_set(version)


def test_the_free_threaded_build_is_refused():
    refuse_free_threading(disabled=False)
    with pytest.raises(ImportError, match="needs a Python with the GIL, and this is the free-threaded"):
        refuse_free_threading(disabled=True)
