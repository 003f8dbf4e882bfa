"""``compile``, ``eval`` and ``exec`` of constant text in the caller's scope (``eval(f"self.layer{i}")``).

Equal texts are compiled once and share one code object, so that functions made by the text have the same code
in every trace. Text that binds names in the scope, text that warns, and calls with explicit namespaces run in
plain Python.
"""

from __future__ import annotations
import __future__

import builtins
import dis
import functools
import operator
import warnings
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, Final

from fxstack_capture.breaks import graph_break
from fxstack_capture.bytecode.null import NULL
from fxstack_capture.callers import calls_program
from fxstack_capture.calls.table import RuleTable
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.trace.state import Trace
from fxstack_interchange.bytecode import Kind, opcodes_of

RULES = RuleTable()

_FUTURE: Final = functools.reduce(
    operator.or_, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)
_BINDING: Final = opcodes_of(Kind.BINDS_NAME)


@functools.lru_cache(1024)
@calls_program
def _compiled(text: str, file: str, mode: str, flags: int) -> CodeType | None:
    """The code object, or None if compiling the text warns. Raises the exceptions of ``compile``."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        code: CodeType = compile(text, file, mode, flags, dont_inherit=True)
    return None if given else code


def _code(trace: Trace, name: str, text: tuple[Any, ...], mode: str) -> CodeType:
    """Compile ``text`` with the ``__future__`` flags of the current function.

    ``text`` is a tuple of the source text and the name of its file.
    """
    if any(type(part) is not str for part in text):
        raise graph_break("side-effect-call", name)
    flags = trace.interp.current_frame().code.co_flags & _FUTURE
    code = _compiled(*text, mode, flags)
    if code is None:
        raise graph_break("side-effect-call", f"{name} of text that is warned about")
    return code


@RULES.rule(compile)
def _compile(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) != 3 or kwargs or args[2] not in ("eval", "exec", "single"):
        raise graph_break("side-effect-call", "compile")
    return _code(trace, "compile", args[:2], args[2])


def _in_scope(fn: Callable[..., Any]) -> Any:
    """The rule of ``eval`` or ``exec``."""
    name = fn.__name__

    def rule(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) != 1 or kwargs:
            raise graph_break("side-effect-call", name)
        (what,) = args
        if type(what) is not CodeType:
            # CPython's ``eval`` strips leading spaces and tabs. Its file name is ``<string>``.
            text = what.lstrip(" \t") if fn is eval and type(what) is str else what
            what = _code(trace, name, (text, "<string>"), name)
        interp = trace.interp
        result = interp.run_body(*_body(what, interp.current_frame(), name))
        return result if fn is eval else None

    return rule


def _body(code: CodeType, frame: Frame, name: str) -> tuple[FunctionType, dict[str, Any]]:
    """A function that runs ``code`` as part of ``frame``, and all variables of ``frame``.

    ``dir()`` and ``locals()`` list these variables.
    """
    if code.co_freevars or _BINDING & {op.opname for op in dis.get_instructions(code)}:
        raise graph_break("side-effect-call", f"{name} of code that binds names")
    if frame.names is not None:
        return FunctionType(code, frame.globals), frame.names
    found = {n: frame.value_of(i) for i, n in enumerate(frame.program.names)}
    variables = {n: value for n, value in found.items() if value is not NULL}
    return FunctionType(code, frame.globals), variables


for _fn in (builtins.eval, builtins.exec):
    RULES.add(_fn, _in_scope(_fn))
