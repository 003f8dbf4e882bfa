"""The entries of a code object as debuggers of torch's compiler read them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any

from fxstack_capture import native
from fxstack_capture.guards.explain import first_failure, guard_text


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """An entry: the code that runs in place of a frame, and the function that says whether its guards hold.

    ``guard_manager`` has the text of each guard as a string literal in ``code_parts``; ``check`` is itself.
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
    def holds(f_locals: Mapping[str, object]) -> bool:
        functions = (function for function in gc.get_referrers(code) if isinstance(function, FunctionType))
        return entry.tree is None or first_failure(entry.tree, next(functions), dict(f_locals)) is None

    guards: Any = holds
    guards.check = holds
    guards.code_parts = [] if entry.tree is None else [repr(guard_text(guard)) for guard in entry.tree.meta]
    return guards
