"""``torch.func`` and forward-mode AD: torch's own layers run over fakes, and the graph records below.

``vmap``, ``grad``, ``jvp`` and relatives are Python code around a few C functions that push and pop layers
and wrap tensors. The interpreter runs the Python code. The C functions, and all torch calls while a layer is
on, really run (``run``). In the end the layers call operators on plain tensors. A dispatch mode records these
operators as nodes, so the graph has only ordinary operators and no transforms. The program's own autograd is
above the mode, so eager would differentiate the same operators.

While a layer is on, the program holds wrapped tensors, which no node computes. Therefore a graph cannot break
while a layer is on. The entry points of transforms are not resumable calls (``interpreter.stopping``), so
plain Python runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from fxstack_capture import torch_compat
from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import calls_program
from fxstack_capture.torch_compat import (
    FakeTensor,
    temporarily_clear_interpreter_stack,
    tree_leaves,
    tree_map_only,
    unset_fake_temporarily,
)
from fxstack_capture.torch_side.fakes.writes import OperatorMode, written_tensors
from fxstack_capture.torch_side.global_state import state
from fxstack_capture.torch_side.recording.execution import UNSUPPORTED, first_line, name_of, python_dispatcher
from fxstack_capture.torch_side.recording.protocol import LiftingProtocol, TracerProtocol
from fxstack_capture.torch_side.subclasses.wrapper_classes import is_wrapped
from fxstack_capture.trace.state import Args, Kwargs

# Limits: three cases run the whole transform in plain Python: linearize, a program's autograd.Function under
# a transform if the program also takes a gradient outside of the transform, and any graph break inside of a
# transform.

_C = torch_compat.functorch
_LIFT = frozenset({torch.ops.aten.lift_fresh.default, torch.ops.aten.lift.default})
_LEAVE = {
    _C.TransformType.Vmap: _C._vmap_decrement_nesting,
    _C.TransformType.Grad: _C._grad_decrement_nesting,
    _C.TransformType.Jvp: _C._jvp_decrement_nesting,
    _C.TransformType.Functionalize: _C._func_decrement_nesting,
}
"""The functions that pop a layer of each kind. torch 2.11 cannot pop layers of different kinds at once."""
_UNRECORDED = frozenset({torch.ops.prim.device.default})
_META = torch.device("meta")
_ZEROS = torch.ops.aten._efficientzerotensor.default
_SYMBOLIC = (torch.SymInt, torch.SymFloat)
_TO_COPY = torch.ops.aten._to_copy.default
_SCALAR_TENSOR = torch.ops.aten.scalar_tensor.default
"""Replaces ``_to_copy`` of a number: torch's batching rules pass the symbolic number, not its tensor."""
_MAX_LITERAL_ELEMENTS = 4096
"""The largest tensor of Python numbers, in elements, that the graph writes out as literals."""


class Transforms:
    """The active layers of one trace, and the torch state that the graph has set below the layers."""

    def __init__(self, tracer: TracerProtocol) -> None:
        self._tracer = tracer
        self._used = False
        self._dual_levels = 0
        self._graph_state: list[tuple[Any, ...]] | None = None
        self._mode = _BelowTransforms(self)
        self._has_zeros = False
        self._is_recording = True
        self.lifting: LiftingProtocol | None = None
        """Replaces wrapped tensors by fakes, while a function is traced without the layers around it."""

    @contextmanager
    def without_layers(self, lifting: LiftingProtocol) -> Iterator[None]:
        """Trace a function as if no layer was active. ``lifting`` replaces wrapped tensors. The layers are off."""
        before, self.lifting = self.lifting, lifting
        levels, self._dual_levels = self._dual_levels, 0
        try:
            yield
        finally:
            self._pop_layers()  # after a graph break inside of the function
            self.lifting, self._dual_levels = before, levels

    def without_wrappers(self, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        """Return arguments of a call. If a function is traced without the layers around it, fakes replace wrappers."""
        return (args, kwargs) if self.lifting is None else self.lifting.fakes_of((args, kwargs))

    @contextmanager
    def recording(self, *, on: bool) -> Iterator[None]:
        """Record operators below the layers inside the context, or not: the tracer itself calls them."""
        before, self._is_recording = self._is_recording, on
        try:
            yield
        finally:
            self._is_recording = before

    @property
    def inside(self) -> bool:
        """Whether a layer or a level of forward-mode AD is active."""
        return self._used and (_C.get_dynamic_layer_stack_depth() > 0 or self._dual_levels > 0)

    def concern(self, args: Sequence[Any], kwargs: Kwargs) -> bool:
        """Return whether a call must run below transforms, or uses results of a finished transform (``vjp``)."""
        if not self._used:
            return False
        return self.inside or any(map(is_wrapped, tree_leaves((args, kwargs))))

    # --- running ---------------------------------------------------------------------------------

    @calls_program
    def run(self, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """Run ``fn`` for real. Raise the program's exception, or GraphBreak if the exact exception is unknown."""
        self._used = True
        args, kwargs = self.without_wrappers(args, kwargs)
        if self._graph_state is None:
            self._graph_state = state.present()
        try:
            with (
                self._tracer.unrecorded(),
                python_dispatcher(self._tracer.mode),
                self._tracer.mode,
                self._mode,
            ):
                result = fn(*args, **kwargs)
        except Exception as error:
            if self._tracer.trace.options.fullgraph and not isinstance(error, UNSUPPORTED):
                raise
            text = f"{name_of(fn)} under torch.func ({first_line(error)})"
            raise graph_break("unsupported-call", text) from error
        if self.lifting is not None:
            self.lifting.note_made(result)
        if not self.inside:
            self._record_state_changes(state.present())
            self._graph_state = None
        return result

    def _record_state_changes(self, needed: list[tuple[Any, ...]]) -> None:
        """Record state changes until the graph's next operator runs under the state ``needed``."""
        assert self._graph_state is not None
        for redo in state.difference(self._graph_state, needed, in_graph=True):
            self._tracer.record_effect(*redo)
        self._graph_state = needed

    # --- recording -------------------------------------------------------------------------------

    def record(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """Record an operator that reaches the mode below all layers. The tensors of the operator are fakes."""
        if func in _UNRECORDED or not self._is_recording:
            return func(*args, **kwargs)
        self._record_state_changes(state.state_below_autocast())
        if func in _LIFT and not isinstance(args[0], FakeTensor):
            return self._literal(func, args[0])
        if func is _ZEROS:
            self._has_zeros = True
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        if self._has_zeros:
            args, kwargs = tree_map_only(torch.Tensor, _fake_of_zeros, (args, kwargs))
            if self._is_about_shapes(args, kwargs):
                return func(*args, **kwargs)
            self._write_zeros((args, kwargs))
        if func is _TO_COPY and isinstance(args[0], _SYMBOLIC):
            whole = isinstance(args[0], torch.SymInt)
            dtype = kwargs.get("dtype") or (torch.int64 if whole else torch.float64)
            func, kwargs = _SCALAR_TENSOR, {"dtype": dtype}
        builder = self._tracer.builder
        tensors: list[torch.Tensor] = []
        node_args = tuple([builder.argument(arg, tensors) for arg in args])
        node_kwargs = {name: builder.argument(arg, tensors) for name, arg in kwargs.items()}
        result = func(*args, **kwargs)
        for tensor in written_tensors(func, args, kwargs):
            self._tracer.note_mutated(tensor)
        self._write(func, node_args, node_kwargs, result)
        return result

    def _write(self, target: Any, args: Args, kwargs: Kwargs, result: Any) -> None:
        """Add a node for a call that has already run with the result ``result``."""
        node = self._tracer.builder.add("call_function", target, args, kwargs)
        self._tracer.annotate(node)
        self._tracer.builder.bind(result, node)
        self._tracer.all_bound()

    def _is_about_shapes(self, args: Args, kwargs: Kwargs) -> bool:
        """Return whether torch only computes the metadata of an operation with zeros, on the meta device."""
        if kwargs.get("device") == _META:
            return True
        is_known = self._tracer.builder.is_known
        tensors = (x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor))
        return any(x.device == _META and not is_known(x) for x in tensors)

    def _write_zeros(self, values: object) -> None:
        """Add nodes for the tensors of zeros among ``values``, which an operator of the graph reads."""
        # Only torch's own rules for zeros read most zeros, so most zeros need no node.
        is_known = self._tracer.builder.is_known
        for x in tree_leaves(values):
            if isinstance(x, FakeTensor) and x._is_zerotensor() and not is_known(x):
                made_as = {"dtype": x.dtype, "device": x.device}
                self._write(_ZEROS, (list(x.shape),), made_as, x)

    def _literal(self, func: Callable[..., Any], real: torch.Tensor) -> Any:
        """Return the fake of ``real``, a tensor that torch made of Python numbers, and add a node that makes it."""
        if real.numel() > _MAX_LITERAL_ELEMENTS:
            raise graph_break("unsupported-tensor", "a large tensor of Python numbers in torch.func")
        fake = func(real)
        with unset_fake_temporarily():
            numbers = real.tolist()
        self._write(torch.tensor, (numbers,), {"dtype": real.dtype}, fake)
        return fake

    def suspended(self) -> AbstractContextManager[object]:
        """Disable the layers inside the context, where the tracer itself makes torch calls."""
        return temporarily_clear_interpreter_stack() if self.inside else nullcontext()

    # --- levels ----------------------------------------------------------------------------------

    def run_dual(self, fn: Callable[..., Any], args: Args, kwargs: Kwargs, levels: int) -> Any:
        """Run ``fn``, which enters (``levels`` is 1) or exits (-1) a level of forward-mode AD."""
        self._dual_levels += levels
        return self.run(fn, args, kwargs)

    @contextmanager
    def session(self) -> Iterator[None]:
        """Pop all layers that are still on when the context, a trace, ends."""
        try:
            yield
        finally:
            if self._used:
                self._pop_layers()

    def _pop_layers(self) -> None:
        """Pop the layers that are still on, and leave the levels of forward-mode AD."""
        while _C.get_dynamic_layer_stack_depth():
            _LEAVE[_C.peek_interpreter_stack().key()]()
        for level in reversed(range(self._dual_levels)):
            torch_compat.exit_dual_level(level=level)


def _fake_of_zeros(tensor: torch.Tensor) -> torch.Tensor:
    """Return a fake in place of torch's zeros without memory; any other tensor unchanged."""
    # The zeros are real tensors until an operator of the graph reads them, because torch views and compares
    # zeros without calling a mode.
    if isinstance(tensor, FakeTensor) or not tensor._is_zerotensor():
        return tensor
    return torch_compat.efficientzerotensor(tensor.shape, dtype=tensor.dtype, device=tensor.device)


class _BelowTransforms(OperatorMode):
    """Passes the operators that arrive below all layers to ``Transforms.record``."""

    def __init__(self, transforms: Transforms) -> None:
        super().__init__()
        self._transforms = transforms

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._transforms.record(func, args, kwargs or {})
