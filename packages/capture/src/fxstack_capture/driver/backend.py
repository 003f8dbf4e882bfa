"""Calling a backend: ``(GraphModule, example_inputs) -> callable``, as torch.compile calls one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx import GraphModule

from fxstack_capture import native
from fxstack_capture.driver.errors import BackendError, SkipFrame
from fxstack_capture.driver.reports.verifying import verified
from fxstack_capture.options import CaptureOptions
from fxstack_capture.torch_side.global_state import state
from fxstack_capture.torch_side.subclasses.suspended_modes import without_classes, without_modes
from fxstack_capture.trace.records import CapturedCode

Backend = Callable[[Any, list[Any]], Callable[..., Any]]


def eager(graph_module: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:  # noqa: ARG001
    """The backend that runs the captured graph as it is."""
    result: Callable[..., Any] = graph_module.forward
    return result


def name_of(backend: Backend) -> str:
    return getattr(backend, "__qualname__", None) or type(backend).__qualname__


def compile_graph(
    backend: Backend, captured: CapturedCode, where: str, options: CaptureOptions
) -> Callable[..., Any]:
    """The compiled graph; it runs with the frame hook off. Raises BackendError, or SkipFrame if the backend does."""
    before = state.present()
    try:
        made = backend(captured.graph_module, list(captured.example_inputs))
    except SkipFrame:
        raise
    except Exception as error:
        raise BackendError(name_of(backend), where, error) from error
    finally:  # a backend that runs the graph sets what the graph sets
        state.put_back(before)
    if not callable(made):
        error = TypeError(f"it returned a {type(made).__qualname__}, not a callable")
        raise BackendError(name_of(backend), where, error)
    if options.verify_correctness:
        made = verified(made, captured.graph_module, name_of(backend), where)
    if captured.overrides_modes:
        made = without_modes(made)
    if captured.overrides_classes:
        made = without_classes(made, captured.redefined)
    return native.Disabled(made) if native.AVAILABLE else made
