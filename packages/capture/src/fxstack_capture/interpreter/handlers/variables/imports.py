"""Imports of loaded modules. Any other import has side effects and breaks the graph."""

from __future__ import annotations

import builtins
import importlib.util
import sys
from types import ModuleType
from typing import Any

from fxstack_capture.breaks import graph_break
from fxstack_capture.guards.records import IdentityIs
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.sources import Key, pinned


def import_name(frame: Frame, name: str) -> None:
    """Replace the level and the name list on the stack by the module. Break the graph if the module is not
    loaded yet.
    """
    stack = frame.stack
    level, wanted = stack[-2:]
    importer = frame.builtins.get("__import__")
    if importer is not builtins.__import__:
        raise graph_break("unsupported-bytecode", f"import of {name} by a replaced __import__")
    module = _loaded_module(frame, name, level, wanted)
    stack[-2:] = (frame.objects.enter(module, pinned(module, module.__name__)),)


def _loaded_module(frame: Frame, name: str, level: int, wanted: Any) -> ModuleType:
    """Return the module that ``import name`` gives, from ``sys.modules``.

    ``level`` is the number of leading dots. ``wanted`` are the names after ``from ... import``, or None.
    Break the graph if the import would run code, because side effects of imports must happen in eager.
    """
    full = name
    if level:
        package = frame.globals.get("__package__")
        if not isinstance(package, str) or not package:
            raise graph_break("side-effect-call", f"the relative import of {name}")
        full = importlib.util.resolve_name("." * level + name, package)
    module = sys.modules.get(full)
    if not isinstance(module, ModuleType) or _initializing(module):
        raise graph_break("side-effect-call", f"the first import of {full}")
    _guard_loaded(frame, full, module)
    if wanted:
        for item in wanted:
            if item == "*" or (hasattr(module, "__path__") and not hasattr(module, item)):
                raise graph_break("side-effect-call", f"the import of {item} from {full}")
        return module
    if level:
        # The compiler emits a from-list for every import with a level. Only handwritten bytecode has none.
        raise graph_break("unsupported-bytecode", f"the relative import of {name}")
    top = name.partition(".")[0]
    _guard_loaded(frame, top, sys.modules[top])
    return sys.modules[top]


def _guard_loaded(frame: Frame, name: str, module: ModuleType) -> None:
    """Guard the entry of ``sys.modules``, because the program may replace the module."""
    source = Key(pinned(sys.modules, "sys.modules"), name)
    frame.interp.trace.guard(source, IdentityIs(module, id(module)))


def _initializing(module: ModuleType) -> bool:
    """Return whether the body of the module is still running. Attributes of the module may then be missing."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def import_from(frame: Frame, name: str) -> None:
    """Push an attribute of the module, or a submodule that is already loaded.

    Raises CPython's ImportError if neither exists.
    """
    module = frame.stack[-1]
    try:
        frame.stack.append(frame.objects.load_attr(module, name))
    except AttributeError as missing:
        frame.interp.dealt_with(missing)
    else:
        return
    package = getattr(module, "__name__", "<unknown module name>")
    submodule = sys.modules.get(f"{package}.{name}")
    if submodule is not None:
        _guard_loaded(frame, f"{package}.{name}", submodule)
        frame.stack.append(frame.objects.enter(submodule, pinned(submodule, submodule.__name__)))
        return
    file = getattr(module, "__file__", None)
    raise ImportError(
        f"cannot import name {name!r} from {package!r} ({file or 'unknown location'})",
        name=package,
        path=file,
    )
