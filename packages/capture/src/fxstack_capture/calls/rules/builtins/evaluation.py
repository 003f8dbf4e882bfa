"""``compile``, ``eval`` and ``exec`` of constant text in the caller's scope, and ``types.FunctionType``.

An example is ``eval(f"self.layer{i}")``. Equal texts are compiled once and share one code object. Therefore
functions made by a text have the same code in every trace. Three kinds of calls run in plain Python: text
that binds names in the scope, text whose compilation warns, and calls with explicit namespaces.
"""

from __future__ import annotations
import __future__

import dis
import functools
import operator
import warnings
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, Final

from fxstack_capture.breaks import graph_break
from fxstack_capture.bytecode.null import NULL
from fxstack_capture.callers import calls_program, plainly
from fxstack_capture.calls.rules import RULES
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.trace.state import Args, Kwargs, Trace
from fxstack_interchange.bytecode import Kind, opcodes_of

_FUTURE: Final = functools.reduce(
    operator.or_, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)
"""The ``co_flags`` of all features of ``__future__``."""
_BINDING: Final = opcodes_of(Kind.BINDS_NAME)
"""The names of opcodes that bind a name."""


@functools.lru_cache(1024)
@calls_program
def _compiled(text: str, file: str, mode: str, flags: int) -> CodeType | None:
    """Return the code object of ``text``, or None if compiling the text warns.

    Raises the exceptions of ``compile``. ``mode`` is "eval", "exec" or "single".
    """
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        code: CodeType = compile(text, file, mode, flags, dont_inherit=True)
    return None if warned else code


def _code(trace: Trace, name: str, text: tuple[Any, ...], mode: str) -> CodeType:
    """Return the code object of ``text``, with the ``__future__`` flags of the current function.

    ``text`` contains the source text and the name of its file. ``name`` is the called builtin, for the
    message of a graph break.
    """
    if any(type(part) is not str for part in text):
        raise graph_break("side-effect-call", name)
    flags = trace.interp.current_frame().code.co_flags & _FUTURE
    code = _compiled(*text, mode, flags)
    if code is None:
        raise graph_break("side-effect-call", f"{name} of text that is warned about")
    return code


@RULES.rule(compile)
def _compile(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Compile constant text to a code object. Break the graph for other arguments."""
    if len(args) != 3 or kwargs or args[2] not in ("eval", "exec", "single"):
        raise graph_break("side-effect-call", "compile")
    return _code(trace, "compile", args[:2], args[2])


@RULES.rule(eval, exec)
def _run_in_scope(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Interpret constant text or a code object in the scope of the calling function. Break the graph if the
    program passes namespaces.
    """
    name = fn.__name__
    if len(args) != 1 or kwargs:
        raise graph_break("side-effect-call", name)
    (code,) = args
    if type(code) is not CodeType:
        # CPython's ``eval`` strips leading spaces and tabs. Its file name is ``<string>``.
        text = code.lstrip(" \t") if fn is eval and type(code) is str else code
        code = _code(trace, name, (text, "<string>"), name)
    interp = trace.interp
    result = interp.run_body(*_body(code, interp.current_frame(), name))
    return result if fn is eval else None


def _body(code: CodeType, frame: Frame, name: str) -> tuple[FunctionType, dict[str, Any]]:
    """Return a function that runs ``code`` as part of ``frame``, and all variables of ``frame`` by name.
    Break the graph if ``code`` binds names.

    ``dir()`` and ``locals()`` list these variables.
    """
    if code.co_freevars or _BINDING & {op.opname for op in dis.get_instructions(code)}:
        raise graph_break("side-effect-call", f"{name} of code that binds names")
    if frame.names is not None:
        return FunctionType(code, frame.globals), frame.names
    values = {n: frame.value_of(i) for i, n in enumerate(frame.program.names)}
    variables = {n: value for n, value in values.items() if value is not NULL}
    return FunctionType(code, frame.globals), variables


@RULES.rule(FunctionType)
def _new_function(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> FunctionType:
    """Create a function whose globals are the real namespace of a module.

    If the program has created the namespace itself, the graph breaks.
    """
    objects = trace.objects
    namespace = objects.original_of(args[1] if len(args) > 1 else kwargs.get("globals"))
    if type(namespace) is dict and "__name__" not in namespace:
        raise graph_break("unsupported-call", "FunctionType with a namespace that is no module's")
    if len(args) > 1:
        args = (args[0], namespace, *args[2:])
    else:
        kwargs = {**kwargs, "globals": namespace}
    function: FunctionType = plainly(fn, args, kwargs)
    objects.note_new(function)
    return function
