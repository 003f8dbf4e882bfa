"""Functions that run with the frame hook off: functions with torch's mark, imports, and torch's own compiler.

A module that is being imported is incomplete. If the import calls a function and the function is compiled,
the compilation may need this module: torch imports its own compiler lazily, in the middle of a program.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import torch

from fxstack_capture import native
from fxstack_capture.annotations import disable
from fxstack_capture.bytecode.arguments import argument_names, with_positional_arguments
from fxstack_capture.emit.builder import Builder, call, load, tuple_of
from fxstack_capture.emit.code import compile_replacement
from fxstack_capture.emit.loads import Loads
from fxstack_capture.guards.accesses import RealFrame
from fxstack_capture.sources import FreeCell, Globals

_TORCHS_COMPILER = str(Path(torch.__file__).parent / "_dynamo") + "/"
_IMPORT = vars(importlib)["_bootstrap"]._find_and_load.__code__


def is_disabled(function: FunctionType) -> bool:
    """Whether ``function`` is part of an import or of torch's compiler, or is marked by
    ``torch.compiler.disable``.

    The frame of such a function runs in plain Python with everything that it calls.
    """
    if function.__code__ is _IMPORT or function.__code__.co_filename.startswith(_TORCHS_COMPILER):
        return True
    return bool(function.__dict__ and function.__dict__.get("_torchdynamo_disable"))


def is_skipping(code: CodeType | None) -> bool:
    """Whether ``code`` is the wrapper of ``disable(recursive=False)``, of torch or of this package.

    The wrapper and the function that it calls run in plain Python. Functions called by that function are
    compiled.
    """
    if code is None or code.co_name != "nonrecursive_disable_wrapper":
        return False
    return code.co_filename.startswith((_TORCHS_COMPILER, disable.__code__.co_filename))


def what_is_disabled(fn: Any) -> Any:
    """Return the function inside of a ``disable(recursive=False)`` wrapper. If ``fn`` is no such wrapper,
    return ``fn``.

    ``optimize`` calls this. If the user compiles the wrapper itself, the function inside is compiled.
    """
    return fn.__wrapped__ if is_skipping(getattr(fn, "__code__", None)) else fn


def disabled_code(frame: RealFrame, code: CodeType) -> CodeType:
    """Return replacement code that runs ``code``, and everything that it calls, with the frame hook off."""
    builder = Builder((*code.co_varnames, *code.co_freevars, *code.co_cellvars))
    loads = Loads(builder, frame)
    cells = [loads.expr(FreeCell(name)) for name in code.co_freevars]
    function = call(
        builder.constant(FunctionType, "FunctionType"),
        builder.constant(with_positional_arguments(code), f"code_{code.co_name}"),
        loads.expr(Globals()),
        ast.Constant(code.co_name),
        ast.Constant(None),
        tuple_of(cells) if cells else ast.Constant(None),
    )
    off = call(builder.constant(native.Disabled, "Disabled"), function)
    arguments = [load(name) for name in argument_names(code)]
    statements = [*builder.loads, ast.Return(call(off, *arguments))]
    return compile_replacement(code, builder, statements, code.co_firstlineno)[0]
