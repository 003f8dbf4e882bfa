"""Call a backend: a function ``(GraphModule, example_inputs) -> callable``, as for torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils.checkpoint import CheckpointPolicy

from fxstack_capture import native, torch_compat
from fxstack_capture.breaks import graph_break
from fxstack_capture.driver.errors import BackendError, SkipFrame
from fxstack_capture.driver.reports.verifying import verified
from fxstack_capture.guards.accesses import RealFrame, read
from fxstack_capture.options import CaptureOptions
from fxstack_capture.sources import Source
from fxstack_capture.torch_compat import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedFakeTensorException,
    UnsupportedMutationAliasingException,
    UnsupportedOperatorException,
)
from fxstack_capture.torch_side.global_state import state
from fxstack_capture.torch_side.subclasses.suspended_modes import without_classes, without_modes
from fxstack_capture.trace.records import CapturedCode
from fxstack_interchange.passes import StoppedAfterPass
from fxstack_interchange.torch_facts.torch_errors import torch_error_types

Backend = Callable[[Any, list[Any]], Callable[..., Any]]
"""A function of a graph module and its example inputs. It returns a callable that takes the inputs of the
graph.
"""

WANTS_FAKES = "wants_fake_inputs"
"""The attribute of a backend that needs fake tensors as example inputs. All other backends get the call's
tensors.
"""

_DECLINING = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedMutationAliasingException,
    UnsupportedOperatorException,
)
"""Errors that fakes raise inside of a backend. As in torch, they end the graph."""


def eager(graph_module: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:  # noqa: ARG001
    """Return the captured graph unchanged. This is the backend ``eager``."""
    result: Callable[..., Any] = graph_module.forward
    return result


setattr(eager, WANTS_FAKES, True)


@contextmanager
def _inputs_for(backend: Backend, captured: CapturedCode, frame: RealFrame) -> Iterator[list[Any]]:
    """Yield the example inputs for ``backend``: the call's tensors, as torch passes them, or fakes.

    A backend made with torch's ``aot_autograd`` gets the call's tensors. It takes their fakes and symbols
    from the fake mode in torch's tracing context.
    """
    fakes = list(captured.example_inputs)
    if getattr(backend, WANTS_FAKES, False):
        yield fakes
        return
    _write_metadata(captured, frame)
    inputs = [_real(fake, source, frame) for fake, source in zip(fakes, captured.inputs, strict=True)]
    mode = next((fake.fake_mode for fake in fakes if isinstance(fake, FakeTensor)), None)
    if mode is None:
        yield inputs
        return
    for real, fake in zip(inputs, fakes, strict=True):
        if real is not fake:
            mode.fake_tensor_converter.set_tensor_memo(real, fake)
    with torch_compat.tracing(torch_compat.TracingContext(mode)):
        yield inputs


def _real(fake: object, source: Source, frame: RealFrame) -> object:
    """Return the call's tensor for ``fake``. If ``fake`` does not represent an input tensor, return ``fake``."""
    if type(fake) is not FakeTensor:
        return fake
    real = read(source, frame)
    return real if type(real) in (torch.Tensor, torch.nn.Parameter) else fake


def _write_metadata(captured: CapturedCode, frame: RealFrame) -> None:
    """Add metadata for a backend without ``WANTS_FAKES``: checkpoint tags, and the sources and full names of
    inputs.
    """
    # Torch's partitioners use the numbers of checkpoints to find the boundaries of checkpoints.
    graph_module: Any = captured.graph_module
    for node in graph_module.graph.nodes:
        if node.name in captured.checkpoints:
            number, tag = captured.checkpoints[node.name]
            node.meta.update(recompute=CheckpointPolicy[tag.upper()], ac_graph_id=number)
    names = [node.name for node in graph_module.graph.find_nodes(op="placeholder")]
    graph_module.meta["dynamo_flat_name_to_original_fqn"] = _original_names(names, captured.inputs, frame)
    graph_module._param_name_to_source = dict(zip(names, captured.inputs, strict=True))


def _original_names(names: list[str], inputs: tuple[Source, ...], frame: RealFrame) -> dict[str, str]:
    """Return the qualified name of each parameter and buffer, for example ``{"l_self_weight": "weight"}``.

    The keys are names of placeholders. Such names exist only if the frame is a method of a module.
    """
    owner = frame.arguments.get("self")
    found: dict[int, str] = {}
    if hasattr(owner, "named_parameters") and hasattr(owner, "named_buffers"):
        found = {id(tensor): name for name, tensor in (*owner.named_parameters(), *owner.named_buffers())}
    originals = (found.get(id(read(source, frame))) for source in inputs)
    return {name: original for name, original in zip(names, originals, strict=True) if original is not None}


def name_of(backend: Backend) -> str:
    """Return the name of a backend for messages: its qualified name, or the name of its class."""
    return getattr(backend, "__qualname__", None) or type(backend).__qualname__


def compile_graph(
    backend: Backend, captured: CapturedCode, where: str, options: CaptureOptions, frame: RealFrame
) -> Callable[..., Any]:
    """Compile a captured graph with ``backend``. ``FrameCompiler`` calls this for each frame with a graph.

    ``where`` is the name of the function in messages. The result runs with the frame hook off.

    Raises BackendError if the backend fails, and GraphBreak if the backend declines the graph. Raises
    StoppedAfterPass if an observer stops the compilation.
    """
    before = state.present()
    try:
        with _inputs_for(backend, captured, frame) as example_inputs:
            compiled = backend(captured.graph_module, example_inputs)
    except StoppedAfterPass:
        raise
    except (SkipFrame, *torch_error_types("SkipFrame")) as reason:
        raise graph_break("skipped-by-backend", str(reason)) from None
    except _DECLINING as error:
        detail = f"{name_of(backend)} on the graph captured from {where}: {type(error).__name__}: {error}"
        raise graph_break("unsupported-by-backend", detail) from error
    except Exception as error:
        raise BackendError(name_of(backend), where, error) from error
    finally:  # a backend may run the graph, and the graph may change torch's state
        state.put_back(before)
    if not callable(compiled):
        error = TypeError(f"it returned a {type(compiled).__qualname__}, not a callable")
        raise BackendError(name_of(backend), where, error)
    if options.verify_correctness:
        compiled = verified(compiled, captured.graph_module, name_of(backend), where)
    if captured.overrides_modes:
        compiled = without_modes(compiled)
    if captured.overrides_classes:
        compiled = without_classes(compiled, captured.redefined)
    return native.Disabled(compiled) if native.AVAILABLE else compiled
