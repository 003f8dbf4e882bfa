"""A replacement code object: emitted statements with the original's arguments, free variables and names."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable
from types import CodeType

from fxstack_capture.bytecode.assemble import linetable_of
from fxstack_capture.emit.builder import Builder

_OUTER = "_fxstack_outer"


def signature_of(code: CodeType) -> ast.arguments:
    """Return the parameters of a code object, without defaults. The function object holds the defaults."""
    names = list(code.co_varnames)
    positional = [ast.arg(name) for name in names[: code.co_argcount]]
    rest = names[code.co_argcount :]
    keyword = [ast.arg(name) for name in rest[: code.co_kwonlyargcount]]
    rest = rest[code.co_kwonlyargcount :]
    star = ast.arg(rest.pop(0)) if code.co_flags & inspect.CO_VARARGS else None
    double_star = ast.arg(rest.pop(0)) if code.co_flags & inspect.CO_VARKEYWORDS else None
    count = code.co_posonlyargcount
    return ast.arguments(
        positional[:count], positional[count:], star, keyword, [None] * len(keyword), double_star, []
    )


def function_definition(code: CodeType, builder: Builder, statements: list[ast.stmt]) -> ast.FunctionDef:
    """Return the replacement of ``code`` as a syntax tree: a function with the same parameters.

    ``ast.unparse`` can print the tree. ``_locate`` makes it compilable.
    """
    constants, _ = builder.constants()
    scope: list[ast.stmt] = [ast.Nonlocal(list(code.co_freevars))] if code.co_freevars else []
    body = [*scope, *constants, *statements]
    return _define(code.co_name if code.co_name.isidentifier() else "function", signature_of(code), body)


def _define(name: str, signature: ast.arguments, body: list[ast.stmt]) -> ast.FunctionDef:
    """Return a function definition without decorators. Since Python 3.12, its field ``type_params`` is
    required.
    """
    definition = ast.FunctionDef(name, signature, body, [], None)
    if "type_params" in ast.FunctionDef._fields:  # Python 3.12 added the field
        vars(definition)["type_params"] = []
    return definition


def compile_replacement(
    code: CodeType, builder: Builder, statements: list[ast.stmt], line: int, first_local: str | None = None
) -> tuple[CodeType, ast.FunctionDef]:
    """Compile the replacement for ``code`` on line ``line`` of the user's file.

    Return the code and its tree. The variable ``first_local`` becomes the first local variable after the
    arguments. The guard check stores the inputs of the graph in this variable.
    """
    definition = function_definition(code, builder, statements)
    if first_local is not None:  # the compiler numbers variables in the order of their first use
        after_scope = bool(code.co_freevars)
        definition.body.insert(after_scope, ast.Expr(ast.Name(first_local, ast.Load())))
    no_arguments = ast.arguments([], [], None, [], [], None, [])
    bind: list[ast.stmt] = [
        ast.Assign([ast.Name(name, ast.Store())], ast.Constant(None)) for name in code.co_freevars
    ]
    outer = _define(_OUTER, no_arguments, [*bind, definition])
    module = ast.Module([outer], [])
    _locate(module, line)
    compiled = compile(module, code.co_filename, "exec", dont_inherit=True)
    code_object = _inner(_inner(compiled, _OUTER), definition.name)
    if code_object.co_freevars != code.co_freevars:
        raise ValueError(f"free variables {code_object.co_freevars} do not match {code.co_freevars}")
    _, marks = builder.constants()
    constants = tuple(marks.get(v, v) if isinstance(v, str) else v for v in code_object.co_consts)
    replacement = code_object.replace(
        co_consts=constants,
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_firstlineno=code.co_firstlineno,
        co_linetable=linetable_of(code_object, code.co_firstlineno),
    )
    return replacement, definition


def _inner(code: CodeType, name: str) -> CodeType:
    """Return the nested code object called ``name``. Raises LookupError if ``code`` has none."""
    for value in code.co_consts:
        if isinstance(value, CodeType) and value.co_name == name:
            return value
    raise LookupError(name)


def _locate(node: ast.AST, line: int) -> None:
    """Give every node the position ``line``."""
    # ``ast.fix_missing_locations`` would give the nodes line 1.
    pending: list[ast.AST] = [node]
    while pending:
        current = pending.pop()
        if "lineno" in current._attributes:
            vars(current).update(lineno=line, end_lineno=line, col_offset=0, end_col_offset=0)
        pending += ast.iter_child_nodes(current)


def text_of(definition: ast.FunctionDef, names: Iterable[tuple[str, object]]) -> str:
    """Return the replacement as Python-like text, with a comment for each constant.

    The text is shown to users and in compilation traces. ``names`` are the constants with their names.
    """
    lines = [f"# {name} = {_short(value)}" for name, value in names]
    visible = _define(definition.name, definition.args, [])
    marks = {name for name, _ in names}
    visible.body = [s for s in definition.body if not (_binds(s, marks) or _only_names(s))] or [ast.Pass()]
    ast.fix_missing_locations(visible)
    return "\n".join([*lines, ast.unparse(visible)])


def _binds(statement: ast.stmt, names: set[str]) -> bool:
    """Return whether the statement assigns one of ``names``. ``text_of`` hides these bindings of constants."""
    if not isinstance(statement, ast.Assign):
        return False
    target = statement.targets[0]
    return isinstance(target, ast.Name) and target.id in names


def _only_names(statement: ast.stmt) -> bool:
    """Return whether the statement only reads a variable.

    ``text_of`` hides such a statement, because it has no effect.
    """
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Name)


def _short(value: object) -> str:
    """Return a short text of a constant for the comments of ``text_of``."""
    name = getattr(value, "__qualname__", None)
    return f"{type(value).__name__} {name}" if isinstance(name, str) else repr(value)[:80]
