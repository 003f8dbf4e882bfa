"""Taking code apart and putting it together gives the same code."""

import ast
import dataclasses
import dis
import inspect
import textwrap
import types

import pytest

from fxstack_capture.bytecode.assemble import read, write


def codes_of(module):
    stack = [compile(inspect.getsource(module), module.__file__, "exec")]
    while stack:
        code = stack.pop()
        yield code
        stack += [c for c in code.co_consts if isinstance(c, types.CodeType)]


def reassemble(code):
    out = write(read(code), code.co_firstlineno)
    return code.replace(co_code=out.code, co_linetable=out.linetable, co_exceptiontable=out.exceptiontable)


def listing(code):
    """Operations with targets as ordinal numbers, positions and protected ranges."""
    body = read(code)
    index = {op: i for i, op in enumerate(body.ops)}
    ops = [(o.name, o.target and index[o.target] or o.arg, o.position) for o in body.ops]
    return ops, [
        (index[p.first], p.end and index[p.end], index[p.handler], p.depth, p.lasti) for p in body.protected
    ]


@pytest.mark.parametrize("module", [ast, dataclasses, textwrap, dis, inspect], ids=lambda m: m.__name__)
def test_round_trip(module):
    for code in codes_of(module):
        again = reassemble(code)
        assert listing(again) == listing(code)
        if "STORE_FAST_LOAD_FAST" not in dis.opmap:
            assert again.co_code == code.co_code
            assert again.co_exceptiontable == code.co_exceptiontable
        assert [p[0] for p in again.co_positions()][-1] == [p[0] for p in code.co_positions()][-1]


def test_long_jumps_keep_working():
    source = "def f(n):\n  t = 0\n  for i in range(n):\n" + "    t = t + i * 3 - t\n" * 400 + "  return t\n"
    scope = {}
    exec(source, scope)
    f = scope["f"]
    g = types.FunctionType(reassemble(f.__code__), scope)
    assert g(3) == f(3)


def test_origin_names_the_operation_read():
    code = test_long_jumps_keep_working.__code__
    out = write(read(code), code.co_firstlineno)
    first, second = dis.Bytecode(code), dis.Bytecode(reassemble(code))
    names = {i.offset: i.opname for i in first}
    if "STORE_FAST_LOAD_FAST" not in dis.opmap:
        assert all(names[out.origin[i.offset]] == i.opname for i in second if i.offset in out.origin)
