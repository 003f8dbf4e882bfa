"""Decoding of bytecode: exception tables, lines, the lifetime of decoded programs."""

import dis
import gc
import inspect
import sys
import types

import pytest

from fxstack_capture.bytecode.exception_table import exception_regions
from fxstack_capture.bytecode.units import slot_names
from fxstack_capture.versions.instruction_sets import program_table


def codes(module):
    pending = [compile(inspect.getsource(module), module.__file__, "exec")]
    while pending:
        code = pending.pop()
        yield code
        pending += [const for const in code.co_consts if isinstance(const, types.CodeType)]


@pytest.mark.parametrize("module", [inspect, dis], ids=lambda module: module.__name__)
def test_exception_tables_agree_with_dis(module):
    for code in codes(module):
        expected = [(e.start, e.end, e.target, e.depth, e.lasti) for e in dis._parse_exception_table(code)]
        found = [(r.start, r.end, r.target, r.depth, r.lasti) for r in exception_regions(code)]
        assert found == expected


def test_names_of_slots_agree_with_dis():
    for code in codes(inspect):
        assert list(slot_names(code)) == [code._varname_from_oparg(i) for i in range(len(slot_names(code)))]


def test_jumps_agree_with_dis():
    table = program_table()
    for code in codes(inspect):
        program = table.of(code)
        by_offset = {i.offset: i for i in dis.get_instructions(code)}
        for (handler, operand), offset in zip(program.steps, program.offsets, strict=True):
            instruction = by_offset[offset]
            if instruction.opname.startswith(("JUMP", "POP_JUMP")):
                assert program.offsets[operand] <= instruction.argval
                assert all(
                    by_offset[o].opname in ("EXTENDED_ARG",)
                    for o in range(program.offsets[operand], instruction.argval, 2)
                )


def test_lines_agree_with_dis():
    table = program_table()
    for code in codes(dis):
        program = table.of(code)
        positions = [line for line, *_ in code.co_positions()]
        starts = {i.offset for i in dis.get_instructions(code) if i.opname != "EXTENDED_ARG"}
        for offset, line in zip(program.offsets, program.lines, strict=True):
            if offset in starts and positions[offset // 2] is not None:
                assert line == positions[offset // 2]


def test_programs_die_with_their_code():
    table = program_table()
    namespace = {}
    exec("def f(x):\n  try:\n    return [y for y in x]\n  finally:\n    pass", namespace)
    table.of(namespace["f"].__code__)
    assert len(table) == 1
    assert table.of(namespace["f"].__code__) is table.of(namespace["f"].__code__)
    namespace.clear()
    gc.collect()
    assert len(table) == 0


def test_the_only_place_that_asks_for_the_version():
    import fxstack_capture

    root = inspect.getfile(fxstack_capture).removesuffix("__init__.py")
    for name in sys.modules:
        if name.startswith("fxstack_capture.interpreter"):
            source = inspect.getsource(sys.modules[name])
            assert "version_info" not in source, (name, root)
