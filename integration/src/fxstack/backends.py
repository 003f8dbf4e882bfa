"""Backends by name: this project's backends, and backends of the program or of torch's entry-point group."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, update_wrapper
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, TypeVar, cast, overload

from fxstack.log import CompileLog
from fxstack.pipeline import Backend, LateTable, eager_backend, make_aot_eager_backend, make_backend
from fxstack.settings import CHECKS, CompileOptions, make_options, repro_request
from fxstack_capture.driver.backend import WANTS_FAKES
from fxstack_interchange.torch_facts.torch_errors import CompilerError

F = TypeVar("F", bound=Callable[..., Any])

TORCH_GROUP = "torch_dynamo_backends"

_OURS: dict[str, Callable[[CompileOptions, CompileLog], Backend]] = {
    "inductor": make_backend,
    "aot_eager": make_aot_eager_backend,
    "aot_eager_decomp_partition": lambda options, log: make_aot_eager_backend(options, log, LateTable()),
    "eager": lambda _options, log: _measure_time(eager_backend, log),
}


# Registrations are valid for the whole process, like those of entry points.
_REGISTERED: Final[dict[str, Backend]] = {}
_DEFAULT: Final[list[str | Backend | None]] = [None]
"""One item: the last argument of ``set_default_backend``."""


class UnknownBackendError(CompilerError, ValueError, of_torch="InvalidBackend"):
    """No backend has the name that the program gave."""


@overload
def register_backend(backend: F, name: str | None = ...) -> F: ...


@overload
def register_backend(backend: None = None, name: str | None = ...) -> Callable[[F], F]: ...


def register_backend(backend: Any = None, name: str | None = None) -> Any:
    """Register a backend for ``compile(backend=name)``; also a decorator. The default name is the function's.

    Raises:
        ValueError: if there already is another backend with this name.
        TypeError: if the backend is not callable.
    """
    if backend is None:
        return partial(register_backend, name=name)
    if not callable(backend):
        raise TypeError(f"register_backend: expected a callable, got {backend!r}")
    chosen = name or backend.__name__
    if _REGISTERED.get(chosen, backend) is not backend or chosen in _OURS:
        raise ValueError(
            f"register_backend: there is a backend named {chosen!r} already. fix: pass another name."
        )
    _REGISTERED[chosen] = backend
    return backend


def lookup_backend(name: str) -> Backend:
    """Return the backend that ``compile(backend=name)`` uses, with default options.

    Raises:
        ValueError: if no backend has the name. The message lists the known backends.
    """
    return resolve_backend(name, make_options(None, None), CompileLog())


def list_backends() -> tuple[str, ...]:
    """Return the names that ``backend=`` accepts: this project's, then registered and installed ones."""
    registered = {entry.name for entry in entry_points(group=TORCH_GROUP)}
    return (*_OURS, *sorted((registered | _REGISTERED.keys()) - set(_OURS)))


def set_default_backend(backend: str | Backend | None) -> None:
    """Set the backend that ``compile`` uses if none is given. None restores the initial default.

    Raises:
        ValueError: if no backend has this name.
        TypeError: if ``backend`` is neither a name nor a callable.
    """
    if backend is not None:
        resolve_backend(backend, make_options(None, None), CompileLog())
    _DEFAULT[0] = backend


def get_default_backend() -> str | Backend:
    """Return the backend of ``set_default_backend``, or else of torch's function of the same name."""
    if _DEFAULT[0] is not None:
        return _DEFAULT[0]
    get_torch_default = getattr(
        sys.modules.get("torch._dynamo.backends.registry"), "get_default_backend", None
    )
    return "inductor" if get_torch_default is None else get_torch_default()


def resolve_backend(backend: str | Backend | None, options: CompileOptions, log: CompileLog) -> Backend:
    """Return the backend callable for a name or a callable. None is the default backend.

    Raises:
        ValueError: if no backend has this name. The message lists the known backends.
        TypeError: if ``backend`` is neither a name nor a callable.
    """
    if backend is None:
        backend = get_default_backend()
    if isinstance(backend, str):
        return _check_results(_by_name(backend, options, log), log)
    if not callable(backend):
        raise TypeError(
            f"fxstack.compile: backend must be a name or a callable "
            f"(GraphModule, example_inputs) -> callable, not {type(backend).__name__}."
        )
    return _check_results(_measure_time(backend, log), log)


def _by_name(name: str, options: CompileOptions, log: CompileLog) -> Backend:
    """Return fxstack's backend ``name``, or one that another package registered. The time of the latter is measured."""
    if name in _OURS:
        return _OURS[name](options, log)
    return _measure_time(_load_foreign(name), log)


def is_own(backend: str | Backend | None) -> bool:
    """Return whether a backend belongs to this project, so that it takes ``mode`` and ``options``.

    ``torch.compile`` of the drop-in passes the options of another backend to that backend itself.
    """
    chosen = get_default_backend() if backend is None else backend
    return isinstance(chosen, str) and chosen in _OURS


def with_arguments(backend: str | Backend | None, arguments: dict[str, Any]) -> str | Backend:
    """Return a backend of another project with keyword arguments for each call, as torch passes ``options``."""
    chosen = get_default_backend() if backend is None else backend
    if not arguments:
        return chosen
    called = _load_foreign(chosen) if isinstance(chosen, str) else chosen
    return update_wrapper(partial(called, **arguments), called)


def _load_foreign(name: str) -> Backend:
    """Return the backend ``name`` of another project. Raise UnknownBackendError if there is none."""
    if name in _REGISTERED:
        return _REGISTERED[name]
    loaders = [entry.load for entry in entry_points(group=TORCH_GROUP) if entry.name == name]
    if not loaders and name in _names_of_torch():
        loaders = [partial(_registry_of_torch().lookup_backend, name)]
    if not loaders:
        raise UnknownBackendError(
            f"fxstack.compile: no backend named {name!r}. Known: {', '.join(list_backends())}. "
            f"Packages add backends through the entry-point group {TORCH_GROUP!r}."
        )
    loaded: Backend = loaders[0]()
    return loaded


def _names_of_torch() -> frozenset[str]:
    """Return the names of the backends that torch registers itself. The call loads torch's compiler."""
    return frozenset(_registry_of_torch().list_backends(exclude_tags=()))


def _registry_of_torch() -> Any:
    """Return torch's registry. Nothing else in fxstack loads torch's compiler; here the program asks for it."""
    return import_module("torch._dynamo.backends.registry")


def _measure_time(backend: Backend, log: CompileLog) -> Backend:
    """Return ``backend`` with the time of each call added to the log, under the stage ``backend``."""

    def counted(graph_module: Any, example_inputs: Any) -> Callable[..., Any]:
        with log.measure("backend", log.next_graph()):
            return backend(graph_module, example_inputs)

    return _copy_name(counted, backend)


def _check_results(backend: Backend, log: CompileLog) -> Backend:
    """Return ``backend``, which compares its graphs with eager if ``fxstack minify`` or a setting asks for it."""

    def checked(graph_module: Any, example_inputs: Any) -> Callable[..., Any]:
        """Compile a graph with a check of its results, if the minifier or a repro request asks for one."""
        check = CHECKS[0] if CHECKS else None
        if check is None and (request := repro_request()) is not None:
            from fxstack.minify.requested import RequestedCheck  # noqa: PLC0415 - few programs need it

            reference = partial(_by_name, "aot_eager", make_options(None, None), CompileLog())  # unchecked
            check = RequestedCheck(Path(), request=request, aot_eager=reference)
        if check is None:
            return backend(graph_module, example_inputs)
        compiled: Callable[..., Any] = check.compile(backend, graph_module, example_inputs, log.newest.place)
        return compiled

    return _copy_name(checked, backend)


def _copy_name(wrapper: Any, backend: Backend) -> Backend:
    """Give a wrapper the name of ``backend``, and its mark for backends that take fake tensors."""
    source = backend if hasattr(backend, "__qualname__") else type(backend)
    wrapper.__name__, wrapper.__qualname__ = source.__name__, source.__qualname__
    setattr(wrapper, WANTS_FAKES, getattr(backend, WANTS_FAKES, False))
    return cast("Backend", wrapper)
