"""``install`` puts fxstack in the place of torch's compiler; ``uninstall`` undoes it.

Only functions that compile are replaced. If torch calls them for its own purposes, its own functions run
(``torchs_own``). What a program says to the
compiler (``disable``, ``mark_dynamic``, ``allow_in_graph``, ``set_stance`` and so on) leaves marks that capture
reads, so torch's own functions stay. Callables that torch's compiler made before stay with it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from fxstack import artifacts
from fxstack.dropin import entrances
from fxstack.dropin.torchs_own import replace_by, unless_torchs_own
from fxstack.log import LISTENERS
from fxstack.torch_interop.counters import RECORDS, UTILS
from fxstack_capture import OptimizedModule, comptime, native
from fxstack_capture.guards.explain import first_failure, guard_text
from fxstack_interchange.torch_facts import torch_errors
from fxstack_startup import AfterImport, Change


class _Both(type):
    """Metaclass that makes ``isinstance(m, OptimizedModule)`` true for fxstack modules too."""

    _of_torch: type

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (OptimizedModule, cls._of_torch))

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, (OptimizedModule, cls._of_torch))

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls._of_torch(*args, **kwargs)


def accept_both(of_torch: type) -> type:
    """Return a class that replaces torch's class of compiled modules, for ``isinstance``.

    Calling the class makes a module of torch's compiler.
    """
    cls = _Both(
        of_torch.__name__, (of_torch,), {"__module__": of_torch.__module__, "__doc__": of_torch.__doc__}
    )
    cls._of_torch = of_torch
    return cls


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """An entry as debuggers of torch's compiler read it: the replacement code, and a function that checks the guards.

    ``guard_manager`` has the text of each guard as a string literal in ``code_parts``; ``check`` is the function itself.
    """

    code: CodeType
    guard_manager: Any

    @property
    def check_fn(self) -> Any:
        """The name of ``guard_manager`` in older releases of torch."""
        return self.guard_manager


def cache_entries(original: Callable[[CodeType], list[Any]], code: object) -> list[Any]:
    """``torch._dynamo.eval_frame._debug_get_cache_entry_list``: the entries of both compilers, ours first."""
    function = code.__func__ if isinstance(code, MethodType) else code
    of = function.__code__ if isinstance(function, FunctionType) else code
    if not isinstance(of, CodeType):
        raise TypeError(f"expected a code object, got {code!r}")
    entries = native.entries(of) if native.AVAILABLE else []
    return [*(CacheEntry(entry.code, _guards(of, entry)) for entry in entries), *original(of)]


def _guards(code: CodeType, entry: native.Entry) -> Any:
    """Return an entry's guards in the form in which torch shows them: a callable with ``check`` and ``code_parts``."""

    def holds(f_locals: Mapping[str, object]) -> bool:
        functions = (function for function in gc.get_referrers(code) if isinstance(function, FunctionType))
        return entry.tree is None or first_failure(entry.tree, next(functions), dict(f_locals)) is None

    guards: Any = holds
    guards.check = holds
    guards.code_parts = [] if entry.tree is None else [repr(guard_text(guard)) for guard in entry.tree.meta]
    return guards


_MISSING: Final = object()


class _Installation:
    """The replaced attributes with the objects that they had."""

    def __init__(self) -> None:
        self._originals: list[tuple[ModuleType, str, object]] = []
        self._made: dict[str, tuple[object, object]] = {}
        changes = {name: self._changer(name) for name in _REPLACEMENTS}
        self._after_import = AfterImport(
            {**changes, torch_errors.MODULE: _derive_errors, UTILS: RECORDS.hand_over}
        )

    def start(self) -> None:
        self._after_import.start()

    def undo(self) -> None:
        """Put the originals back, in the reverse order of their replacement."""
        self._after_import.stop()
        for module, name, original in reversed(self._originals):
            setattr(module, name, original)
        self._originals.clear()

    def _changer(self, of: str) -> Change:
        """Return the function that replaces the attributes of module ``of`` once the module is imported."""

        def change(module: ModuleType) -> None:
            """Replace the names of one module. Called when torch has imported the module, or now if it has already."""
            for name, replacement in _REPLACEMENTS[of].items():
                present = getattr(module, name, _MISSING)
                if present is _MISSING:
                    continue
                # A package imports what its submodules define, which may be replaced there already.
                original, replaced = self._made.get(name, (present, None))
                if present is not replaced:
                    original, replaced = self._made[name] = present, replacement(present)
                self._originals.append((module, name, original))
                setattr(module, name, replaced)

        return change


def _derive_errors(_module: ModuleType) -> None:
    """Let ``except`` clauses with torch's classes catch errors of fxstack, even errors raised before the import."""
    torch_errors.derive_from_torch()


def _by(replacement: object) -> Callable[[object], object]:
    return lambda _original: replacement


_COMPILING: Final[dict[str, Callable[[Any], object]]] = {
    "optimize": replace_by(entrances.optimize),
    "optimize_assert": replace_by(entrances.optimize_assert),
    "explain": _by(entrances.explain),
    "run": _by(entrances.run),
    "OptimizedModule": accept_both,
}

_REPLACEMENTS: Final[dict[str, dict[str, Callable[[Any], object]]]] = {
    "torch": {"compile": replace_by(entrances.compile)},
    "torch.compiler": {
        "reset": _by(entrances.reset),
        "list_backends": lambda original: partial(entrances.list_backends, original),
        "set_enable_guard_collectives": lambda original: partial(
            entrances.set_enable_guard_collectives, original
        ),
        "save_cache_artifacts": replace_by(unless_torchs_own(artifacts.save_cache_artifacts)),
        "load_cache_artifacts": replace_by(unless_torchs_own(artifacts.load_cache_artifacts)),
    },
    "torch._dynamo": {**_COMPILING, "reset": replace_by(entrances.reset), "run": _by(entrances.run)},
    "torch._dynamo.comptime": {"comptime": _by(comptime)},
    "torch._dynamo.decorators": {"run": _by(entrances.run)},
    "torch._dynamo.eval_frame": {
        **_COMPILING,
        "_debug_get_cache_entry_list": lambda original: partial(cache_entries, original),
    },
}
"""For each module of torch the replaced names, each with a function from the original to the replacement."""

_INSTALLED: list[_Installation] = []


def install() -> None:
    """Let ``torch.compile`` and all that compiles in torch mean fxstack, for the whole process.

    Calling it again does nothing. ``FXSTACK=1`` in the environment does the same when torch is imported.
    """
    if not _INSTALLED:
        installation = _Installation()
        installation.start()
        _INSTALLED.append(installation)
        LISTENERS.append(RECORDS)


def uninstall() -> None:
    """Give torch its compiler back. Callables that fxstack has compiled stay compiled by fxstack."""
    if _INSTALLED:
        _INSTALLED.pop().undo()
        LISTENERS.remove(RECORDS)


def is_installed() -> bool:
    """Return whether ``torch.compile`` means fxstack."""
    return bool(_INSTALLED)
