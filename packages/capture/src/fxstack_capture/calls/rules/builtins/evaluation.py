"""``compile`` of constant text, and ``eval`` and ``exec`` of it in the scope of the caller (``eval(f"self.layer{i}")``).

Equal text is compiled once and gives one code object, so that the functions that it makes have the same code in every trace.
What binds names of the scope, warns, or gives namespaces of its own runs in plain Python.
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
from fxstack_capture.callers import calls_program
from fxstack_capture.calls.table import RuleTable
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.interpreter.values import NULL
from fxstack_capture.trace.state import Trace

RULES = RuleTable()

_FUTURE: Final = functools.reduce(
    operator.or_, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)
_BINDING: Final = frozenset({"STORE_NAME", "DELETE_NAME", "SETUP_ANNOTATIONS"})


@functools.lru_cache(1024)
@calls_program
def _compiled(text: str, file: str, mode: str, flags: int) -> CodeType | None:
    """The code; None where compiling it warns. Raises what ``compile`` does."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        code: CodeType = compile(text, file, mode, flags, dont_inherit=True)
    return None if given else code


def _code(trace: Trace, name: str, text: tuple[Any, ...], mode: str) -> CodeType:
    """The code of ``text`` (with the name of its file), compiled as the current function is."""
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
    """The rule of ``eval`` and ``exec``."""
    name = fn.__name__

    def rule(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) != 1 or kwargs:
            raise graph_break("side-effect-call", name)
        (what,) = args
        if type(what) is not CodeType:
            text = what.lstrip(" \t") if fn is eval and type(what) is str else what
            what = _code(trace, name, (text, "<string>"), name)
        interp = trace.interp
        result = interp.run_body(*_body(what, interp.current_frame(), name))
        return result if fn is eval else None

    return rule


def _body(code: CodeType, frame: Frame, name: str) -> tuple[FunctionType, dict[str, Any]]:
    """What runs ``code`` as part of ``frame``, and all its variables, which ``dir()`` and ``locals()`` list."""
    if code.co_freevars or _BINDING & {op.opname for op in dis.get_instructions(code)}:
        raise graph_break("side-effect-call", f"{name} of code that binds names")
    if frame.names is not None:
        return FunctionType(code, frame.globals), frame.names
    found = {n: frame.value_of(i) for i, n in enumerate(frame.program.names)}
    variables = {n: value for n, value in found.items() if value is not NULL}
    return FunctionType(code, frame.globals), variables


for _fn in (builtins.eval, builtins.exec):
    RULES.add(_fn, _in_scope(_fn))
