"""Alternate backends: ``set_stance(force_backend=...)`` compiles functions with another backend for a while.

A call of a compiled function is redirected before any guard is checked. It goes to an alternate compiler,
which has the other backend and its own entries. If the forced backend is the function's own backend, the
function's own compiler runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxstack_capture import native
from fxstack_capture.driver.backend import Backend, eager
from fxstack_capture.stance import current_stance


def named_backend(forced: str | Backend) -> Backend:
    """Return the backend for the argument of ``force_backend``. ``Alternates`` calls this function.

    The only known name is ``"eager"``. A callable is returned unchanged.

    Raises:
        ValueError: any other name.
    """
    if not isinstance(forced, str):
        return forced
    if forced == "eager":
        return eager
    raise ValueError(
        f"set_stance: unknown backend {forced!r}. fix: pass 'eager', or a callable (GraphModule, example_inputs) -> callable."
    )


class Alternates:
    """The compilers of one compiled callable for backends that ``set_stance(force_backend=...)`` has forced."""

    def __init__(self) -> None:
        self.named_backend: Callable[[Any], Backend] = named_backend
        self._compilers: list[tuple[Any, Any]] = []
        """Pairs (forced backend, compiler). The compiler is None if the backend is the callable's own.

        This is a list and no dictionary, because backends may have no hash.
        """

    def of(self, compiler: Any, forced: str | Backend) -> Any:
        """Return the compiler for a forced backend. ``redirected`` asks in each call. The first request makes
        the compiler.

        If the forced backend is the backend of ``compiler``, return ``compiler``.
        """
        for known, alternate in self._compilers:
            if known is forced or (isinstance(forced, str) and known == forced):
                return alternate or compiler
        backend = self.named_backend(forced)
        alternate = None if backend is compiler.backend else compiler.with_backend(backend)
        self._compilers.append((forced, alternate))
        return alternate or compiler

    def clear(self) -> None:
        """Forget all alternate compilers, with their entries. ``FrameCompiler.reset`` calls this method."""
        self._compilers.clear()


def redirected(optimized: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Call ``optimized(*args, **kwargs)`` with the backend that the stance forces.

    While a stance forces a backend, ``native.Optimized`` calls this function in place of its own call.
    """
    fn: Callable[..., Any] = optimized.fn
    compiler = getattr(optimized.callback, "__self__", None)
    backend = current_stance().backend
    if compiler is None or backend is None:
        return native.run_with(optimized.callback, optimized.owner, fn, args, kwargs)
    alternate = compiler.alternates.of(compiler, backend)
    return native.run_with(alternate.callback, alternate.owner, fn, args, kwargs)


if native.AVAILABLE:
    native.use_redirect(redirected)
