"""``set_stance(force_backend=...)``: compiled functions are compiled by another backend for a while.

A call of a compiled function is redirected, before any guard is looked at, to an alternate of its compiler that has the
other backend and entries of its own. A backend that is the function's own anyway is no other one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxstack_capture import native
from fxstack_capture.driver.backend import Backend, eager
from fxstack_capture.stance import current_stance


def named_backend(given: str | Backend) -> Backend:
    """The backend for what ``force_backend`` was given, where nobody else knows names: ``"eager"`` is the only one.

    Raises:
        ValueError: another name.
    """
    if not isinstance(given, str):
        return given
    if given == "eager":
        return eager
    raise ValueError(
        f"set_stance: unknown backend {given!r}. fix: pass 'eager', or a callable (GraphModule, example_inputs) -> callable."
    )


class Alternates:
    """The alternates of one compiler; they die with it, or when it is told to forget."""

    def __init__(self) -> None:
        self.named_backend: Callable[[Any], Backend] = named_backend
        self._made: list[tuple[Any, Any]] = []

    def of(self, compiler: Any, given: str | Backend) -> Any:
        """The alternate for a forced backend; ``compiler`` itself where it is what that has already."""
        for known, alternate in self._made:
            if known is given or (isinstance(given, str) and known == given):
                return alternate or compiler
        backend = self.named_backend(given)
        alternate = None if backend is compiler.backend else compiler.with_backend(backend)
        self._made.append((given, alternate))
        return alternate or compiler

    def clear(self) -> None:
        self._made.clear()


def redirected(optimized: Any, /, *args: Any, **kwargs: Any) -> Any:
    """``optimized(*args, **kwargs)`` by the backend that is forced now; called by ``native.Optimized``."""
    fn: Callable[..., Any] = optimized.fn
    compiler = getattr(optimized.callback, "__self__", None)
    backend = current_stance().backend
    if compiler is None or backend is None:
        return native.run_with(optimized.callback, optimized.owner, fn, args, kwargs)
    alternate = compiler.alternates.of(compiler, backend)
    return native.run_with(alternate.callback, alternate.owner, fn, args, kwargs)


if native.AVAILABLE:
    native.use_redirect(redirected)
