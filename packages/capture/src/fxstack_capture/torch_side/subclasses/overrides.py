"""``__torch_function__`` of user classes and modes: torch finds the methods, the tracer interprets them.

torch's C code decides three questions: by which function a call is reported, which arguments count, and which
class comes first. Therefore the tracer makes the call on fakes under its own mode (``_Probe``). The probe
sees exactly the calls that a mode of the program would see, and returns the answer of the program's innermost
mode. Without a mode, torch goes on to the classes of the fakes (``fake_classes``).

While tracing, the program's modes are never on: ``modes`` represents them. ``__torch_function__`` of classes
is off during a trace, except in such a call. Therefore the tracer itself may use fakes freely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import FunctionType, MethodWrapperType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, get_default_nowrap_functions

from fxstack_capture import torch_compat
from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import calls_program
from fxstack_capture.guards.records import NOT_FOUND
from fxstack_capture.sources import Converted, pinned
from fxstack_capture.torch_compat import FakeTensor, tree_leaves
from fxstack_capture.torch_compat import pop_mode_temporarily as _pop_mode_temporarily
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.torch_side.rules import attributes, leaves
from fxstack_capture.torch_side.subclasses import fake_classes
from fxstack_capture.torch_side.subclasses.fake_classes import shown_class
from fxstack_capture.torch_side.subclasses.suspended_modes import Level, present_level
from fxstack_capture.trace.late_guards.class_reads import raw_lookup
from fxstack_capture.trace.lazy_dict import ABSENT
from fxstack_capture.trace.state import Args, Kwargs

# Limits: three things break the graph: a ``__torch_function__`` that is no classmethod, a gradient inside of
# the graph of a tensor with ``__torch_function__``, and the conversion of such a tensor into an nn.Parameter.

PUSH = torch_compat.push_on_torch_function_stack
POP = torch_compat.pop_torch_function_stack
MODE_AT = torch_compat.get_function_stack_at

_OVERRIDABLE_FUNCTIONS = frozenset(
    {
        *(torch.tensor, torch.as_tensor, torch.from_numpy, torch.autograd.grad, torch.autograd.backward),
        *(torch_compat.set_grad_enabled, abs),
    }
)
"""Functions that are no operators, but call ``__torch_function__``."""

_WITHOUT_TORCH_FUNCTION = frozenset(
    {
        *(type(None), type(...), bool, int, float, complex, str, bytes, slice),
        *(list, tuple, dict, torch.SymBool, torch.SymInt, torch.SymFloat),
        *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size),
    }
)


class Overrides:
    """The state of torch's overrides, as the program sees it. Each trace has one."""

    def __init__(self, tracer: TracerProtocol) -> None:
        self._tracer = tracer
        self.modes: list[Any] = []
        """The proxies of the program's modes, innermost last."""
        self.outer: tuple[Any, ...] = ()
        """The modes that were on when the frame began."""
        self.level = present_level()
        self._shown: list[FakeTensor] = []
        self._disguised: list[tuple[torch.Tensor, type]] = []
        """Wrappers whose class is temporarily changed, so that its ``__torch_function__`` calls the tracer."""
        self._regions: dict[int, tuple[object, Level]] = {}
        self._plain_tensors: dict[int, tuple[torch.Tensor, _Finish]] = {}
        """Maps the id of a tensor of a user's class to a plain tensor, and to the function that gives it the
        class.
        """

    @property
    def has_classes(self) -> bool:
        """Whether the trace has tensors of users' classes."""
        return bool(self._shown)

    # --- fakes -------------------------------------------------------------------------------

    def show(self, fake: FakeTensor, cls: type) -> None:
        """Let torch and the program see the fake of an input as an instance of ``cls``, a user's class."""
        self._tracer.trace.objects.classes.lookup(cls, "__torch_function__")  # records a guard
        fake_classes.show(fake, cls)
        self._shown.append(fake)

    @contextmanager
    def session(self, outer: Sequence[Any]) -> Iterator[None]:
        """Let torch's C code reach the overrides during the context, a trace.

        ``outer`` are the program's modes. The caller has suspended them.
        """
        enter = self._tracer.trace.objects.enter
        self.outer = tuple(
            enter(mode, Converted(pinned(position, str(position)), MODE_AT))
            for position, mode in enumerate(outer)
        )
        self.modes = list(self.outer)
        token = fake_classes.INTERPRETED.set(self.call_from_c)
        try:
            # The program may also have turned modes off. The tracer's own modes need them on.
            with torch_compat.EnableTorchFunction(), torch_compat.DisableTorchFunctionSubclass():
                yield
        finally:
            fake_classes.INTERPRETED.reset(token)
            for fake in self._shown:
                fake_classes.hide(fake)

    def delta(self) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
        """Return the calls that change torch's mode stack from its state at the start to its current state."""
        common = 0
        while common < min(len(self.outer), len(self.modes)) and self.outer[common] is self.modes[common]:
            common += 1
        pops = len(self.outer) - common
        return [(POP, ())] * pops + [(PUSH, (mode,)) for mode in self.modes[common:]]

    # --- calls -----------------------------------------------------------------------------------

    def concern(self, fn: object, args: Sequence[Any], kwargs: Kwargs) -> bool:
        """Return whether a ``__torch_function__`` or a mode of the program may handle the call."""
        if self.modes and self.level < Level.ALL_OFF:
            return True
        if self.level:
            return False
        if any(map(self._has_torch_function_in_c, _objects(args, kwargs))):
            return True
        wrappers = self._tracer.wrappers
        if not (self._shown or wrappers.used):
            return False
        arguments = _leaves(fn, args, kwargs)
        return any(_is_overriding(leaf) or wrappers.has_torch_function(leaf) for leaf in arguments)

    def overriding(self, values: Sequence[Any]) -> bool:
        """Return whether a value has a ``__torch_function__`` that must be called
        (``torch.overrides.has_torch_function``).
        """
        if self.concern(None, tuple(values), {}):
            return True
        return not self.level and any(map(self._has_torch_function, values))

    def _has_torch_function_in_c(self, value: object) -> bool:
        """Return whether torch's C code calls ``__torch_function__`` of an object that is not a tensor."""
        cls = type(value)
        if cls is FakeTensor or cls in _WITHOUT_TORCH_FUNCTION or isinstance(value, torch.Tensor):
            return False
        return type(raw_lookup(cls, "__torch_function__")) is classmethod and self._has_torch_function(value)

    def _has_torch_function(self, value: object) -> bool:
        """Return whether torch calls ``__torch_function__`` of an object that is not a tensor."""
        # If the attribute is no classmethod, or if the class has a ``__getattr__``, the graph breaks.
        cls = type(value)
        if cls in _WITHOUT_TORCH_FUNCTION or isinstance(value, torch.Tensor):
            return False
        function = self._tracer.trace.objects.classes.lookup(cls, "__torch_function__")  # records a guard
        if type(function) is classmethod:
            return True
        if function is not ABSENT or raw_lookup(cls, "__getattr__") is not NOT_FOUND:
            raise graph_break("unsupported-call", f"__torch_function__ of an instance of {cls.__qualname__}")
        return False

    @calls_program
    def call(self, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """Run a call for which ``concern`` is true. Break the graph if torch calls no override or if all
        overrides refuse.
        """
        if not _is_overridable(fn):
            return self._tracer.call_plainly(fn, args, kwargs)
        if type(fn) is FunctionType:  # a Python function that calls ``handle_torch_function`` itself
            return self._tracer.trace.interp.call_function(fn, args, kwargs)
        probe = _Probe(self)
        try:
            wrapped = _leaves(fn, args, kwargs) if self._tracer.wrappers.used else ()
            enabled = nullcontext() if self.level else torch_compat.EnableTorchFunction()
            with self._disguise(wrapped), enabled, probe:
                result = fn(*args, **kwargs)
        except TypeError as error:
            if "Multiple dispatch failed" in str(error):  # the text contains the names of fake classes
                raise graph_break("unsupported-call", str(error).split(";", 1)[0]) from error
            raise
        if not probe.was_called:
            raise graph_break("unsupported-call", f"{fn} of a tensor of a user's class")
        return result

    @contextmanager
    def _disguise(self, values: Sequence[Any]) -> Iterator[None]:
        """Inside the context, only the wrappers among ``values`` have a class that calls the tracer.

        While torch's C code runs, wrappers are disguised in this way. While the program's Python code runs,
        they are not (``values`` is empty).
        """
        before = self._disguised
        self._change_disguised([(v, type(v)) for v in values if self._tracer.wrappers.has_torch_function(v)])
        try:
            yield
        finally:
            self._change_disguised(before)

    def _change_disguised(self, disguised: list[tuple[torch.Tensor, type]]) -> None:
        """Disguise exactly the wrappers in ``disguised``, a list of pairs (wrapper, class)."""
        for value, cls in self._disguised:
            fake_classes.become(value, cls)
        for value, cls in disguised:
            fake_classes.disguise(value, cls)
        self._disguised = disguised

    def dispatch(self, func: Callable[..., Any], kinds: Sequence[type], args: Args, kwargs: Kwargs) -> Any:
        """Return the answer of the innermost mode. NotImplemented if torch must ask the classes, or must make
        the call.

        The probe calls this method for each call that torch's C code reports.
        """
        has_ducks = not all(issubclass(kind, torch.Tensor) for kind in kinds)
        if kinds and not self.modes and not has_ducks:
            return NotImplemented
        with torch_compat.DisableTorchFunctionSubclass(), self._disguise(()):
            if has_ducks and not self.modes:
                return self._call_classes(func, self._kinds(func, kinds, args), args, kwargs)
            if self.modes:
                return self._call_mode(func, self._kinds(func, kinds, args), args, kwargs)
            if is_accessor(func):
                return attributes.access(self._tracer, func, args)
            return self._tracer.call_plainly(func, args, kwargs)

    def _call_classes(
        self, func: Callable[..., Any], kinds: tuple[type, ...], args: Args, kwargs: Kwargs
    ) -> Any:
        """Return the answer of the first class that implements the function. Break the graph if no class
        does.
        """
        for kind in kinds:
            result = self.call_torch_function(kind, func, kinds, (args, kwargs))
            if result is not NotImplemented:
                return result
        raise graph_break("unsupported-call", f"{func}, which no argument implements,")

    def _kinds(self, func: object, kinds: Sequence[type], args: Args) -> tuple[type, ...]:
        """Return the classes that the program's ``__torch_function__`` gets as ``types``."""
        # For a reflected operator, and for an attribute access, the list also includes the classes of plain
        # tensors.
        if type(func) is FunctionType and func.__code__ is _REFLECTED:
            return tuple(self._class(arg) for arg in self._overloaded_args(args))
        shown = [getattr(kind, "_fxstack_shown", kind) for kind in kinds]
        return tuple(self._class(args[0]) if kind is FakeTensor else kind for kind in shown)

    def _class(self, value: object) -> type:
        """Return the class of a value, as the program sees it, for the argument ``types``."""
        return self._tracer.python_type(value) if isinstance(value, torch.Tensor) else type(value)

    def _overloaded_args(self, values: Sequence[Any]) -> list[Any]:
        """Implement ``torch.overrides._get_overloaded_args``."""
        overloaded: list[Any] = []
        if self.level:
            return overloaded
        for value in values:
            cls = self._class(value)
            classes = [self._class(other) for other in overloaded]
            if cls in classes or not fake_classes.overrides(cls):
                continue
            position = next((i for i, old in enumerate(classes) if issubclass(cls, old)), len(overloaded))
            overloaded.insert(position, value)
        return overloaded

    def handle(self, func: Callable[..., Any], relevant: Sequence[Any], args: Args, kwargs: Kwargs) -> Any:
        """Implement ``torch.overrides.handle_torch_function``. Break the graph if every override returns
        NotImplemented.
        """
        overloaded = self._overloaded_args(relevant)
        kinds = tuple(self._class(value) for value in overloaded)
        result = NotImplemented
        if self.modes and self.level < Level.ALL_OFF:
            result = self._call_mode(func, kinds, args, kwargs)
        for value in overloaded:
            if result is not NotImplemented:
                break
            result = self.call_torch_function(self._class(value), func, kinds, (args, kwargs))
        if result is NotImplemented:
            raise graph_break("unsupported-call", f"{func.__qualname__}, which nobody implements,")
        return result

    def _call_mode(self, func: object, shown: Sequence[type], args: Args, kwargs: Kwargs) -> Any:
        """Return the answer of the program's innermost mode. ``shown`` are the classes that torch reports."""
        mode = self.modes.pop()  # the method of a mode runs without the mode
        try:
            return self.call_torch_function(mode, func, shown, (args, kwargs))
        finally:
            self.modes.append(mode)

    def _wrap_function(self, func: object) -> Any:
        """Return a function that torch reports, as an object from outside of the frame."""
        if type(func) is not FunctionType:
            return func
        return self._tracer.trace.objects.registry.add_itself(func, pinned(func, func.__qualname__))

    def call_torch_function(self, owner: object, func: object, kinds: Sequence[type], call: Args) -> Any:
        """Return the answer of the ``__torch_function__`` of a user's class or mode."""
        trace = self._tracer.trace
        method = trace.objects.load_attr(owner, "__torch_function__")
        return trace.calls.call(method, (self._wrap_function(func), kinds, *call), {})

    def call_from_c(self, cls: type, func: object, kinds: tuple[type, ...], call: Args) -> Any:
        """Run ``call_torch_function`` for a call from torch's C code. The probe is still on during this call."""
        off = torch_compat.DisableTorchFunctionSubclass
        with off(), _pop_mode_temporarily(), self._disguise(()):
            return self.call_torch_function(cls, func, self._kinds(func, kinds, call[0]), call)

    @contextmanager
    def at(self, level: Level) -> Iterator[None]:
        """Inside the context, suspend the overrides that ``level`` turns off."""
        before, self.level = self.level, max(self.level, level)
        try:
            yield
        finally:
            self.level = before

    def enter(self, region: object, level: Level) -> None:
        """Record that the program enters ``region``, a ``with`` block of torch that turns overrides off to
        ``level``.
        """
        self._regions[id(region)] = region, self.level
        self.level = max(self.level, level)

    def leave(self, region: object) -> None:
        """Record that the program leaves ``region``. ``enter`` has recorded it before. Break the graph for
        any other region.
        """
        if id(region) not in self._regions:
            raise graph_break("side-effect-call", "the end of a region that disables __torch_function__")
        _, self.level = self._regions.pop(id(region))

    def default(
        self, cls: type, func: Any, types: Sequence[type], args: Args = (), kwargs: Any = None
    ) -> Any:
        """Return the result of ``torch.Tensor.__torch_function__``, which the user's methods call through
        ``super()``. NotImplemented if ``cls`` is not a subclass of all ``types``.
        """
        if not all(issubclass(cls, kind) for kind in types):
            return NotImplemented
        with self.at(Level.CLASSES_OFF):
            result = self._tracer.trace.calls.call(func, args, kwargs or {})
            if func in get_default_nowrap_functions():
                return result
            return self.convert_result(result, cls)

    def convert_result(self, result: object, cls: type) -> Any:
        """Return ``result``, with its tensors converted to ``cls`` as by ``torch._tensor._convert``."""
        if cls is torch.Tensor:
            return result
        if isinstance(result, torch.Tensor):
            shown = self._tracer.python_type(result)
            return result if issubclass(shown, cls) else self.as_subclass(result, cls)
        if isinstance(result, (tuple, list)):
            return type(result)([self.convert_result(item, cls) for item in result])
        return result

    # --- construction ----------------------------------------------------------------------------

    def as_subclass(self, tensor: torch.Tensor, cls: type) -> torch.Tensor:
        """Implement ``tensor.as_subclass(cls)``: return a view of the whole tensor, with class ``cls``."""
        return self._make_of_class(tensor, torch.ops.aten.alias.default, cls, as_subclass)

    def make_subclass(self, cls: type, data: torch.Tensor) -> torch.Tensor:
        """Implement ``torch.Tensor._make_subclass(cls, data)``: detach the tensor and change its class."""
        return self._make_of_class(data, torch.ops.aten.detach.default, cls, make_subclass)

    def _make_of_class(
        self, of: torch.Tensor, operator: Callable[..., Any], cls: type, finish: Callable[..., Any]
    ) -> Any:
        """Record ``operator``, and give the result the class ``cls``. Outside of the graph, ``finish`` does
        both. Break the graph if fakes of the class are not supported.
        """
        why = fake_classes.unsupported_reason(cls)
        if why is not None:
            raise graph_break("unsupported-tensor", f"class {cls.__qualname__}, which {why},")
        result = self._tracer.record(operator, (of,), {})
        if cls is torch.Tensor:
            return result
        self.show(result, cls)
        with self._tracer.unrecorded():
            self._plain_tensors[id(result)] = (
                of,
                _Finish(finish, cls, _layout(result), torch.is_grad_enabled()),
            )
        return result

    def leaving(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Callable[..., Any]] | None:
        """Return a graph output and the function that makes a tensor of a user's class from it. None for
        other tensors.
        """
        cls = shown_class(tensor)
        if cls is None or self._tracer.source_of(tensor) is not None:
            return None
        with self._tracer.unrecorded():
            original = self._plain_tensors.get(id(tensor))
            if original is not None and original[1].layout == _layout(tensor):
                return original
        plain = self._tracer.record(torch.ops.aten.alias.default, (tensor,), {})
        return plain, _Finish(as_subclass, cls, None, torch.is_grad_enabled())


def as_subclass(tensor: torch.Tensor, cls: type) -> torch.Tensor:
    """Return a view of a graph result, with a class of the program. The replacement code calls this function."""
    return torch.Tensor.as_subclass(tensor, cls)


def make_subclass(tensor: torch.Tensor, cls: type) -> torch.Tensor:
    """Return a detached tensor with a class of the program. The replacement code calls this function."""
    return torch_compat.make_subclass(cls, tensor)


class _Finish:
    """The function that gives a graph result the user's class. The replacement code calls it."""

    __slots__ = ("__name__", "cls", "convert", "grad", "layout")

    def __init__(self, convert: Callable[..., Any], cls: type, layout: object, grad: bool) -> None:
        self.__name__ = f"{convert.__name__}_{cls.__name__}"
        self.convert = convert
        self.cls = cls
        self.layout = layout
        self.grad = grad

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled() is self.grad:
            return self.convert(tensor, self.cls)
        with torch_compat.DisableTorchFunction(), torch.set_grad_enabled(self.grad):
            return self.convert(tensor, self.cls)


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return the metadata that a metadata mutation may change."""
    return tuple(tensor.size()), tensor.stride(), tensor.storage_offset(), tensor.requires_grad


def _leaves(fn: object, args: Sequence[Any], kwargs: Kwargs) -> list[Any]:
    """Return all leaves of a call's arguments, including the tensor of a bound method."""
    leaves_of_call: list[Any] = tree_leaves((getattr(fn, "__self__", None), args, kwargs))
    return leaves_of_call


def _objects(args: Sequence[Any], kwargs: Kwargs) -> Iterator[Any]:
    """Yield the arguments, and the items of lists and tuples, as torch's C code visits them."""
    for value in (*args, *kwargs.values()) if kwargs else args:
        if type(value) in (list, tuple):
            yield from value
        else:
            yield value


_REFLECTED = torch.Tensor.__rsub__.__code__
"""The code objects of reflected operators. They pass all arguments to ``handle_torch_function``."""


def _is_overriding(value: object) -> bool:
    """Return whether the value is a fake of a user's class that has a ``__torch_function__``."""
    cls = shown_class(value) if isinstance(value, torch.Tensor) else None
    return cls is not None and fake_classes.overrides(cls)


def _is_overridable(fn: Callable[..., Any]) -> bool:
    """Return whether torch calls ``__torch_function__`` for a call of ``fn``."""
    if fn in _OVERRIDABLE_FUNCTIONS or is_accessor(fn):
        return True
    is_method = isinstance(getattr(fn, "__self__", None), torch.Tensor)
    if fn in _NOT_OVERRIDABLE or (is_method and fn.__name__ in _NOT_OVERRIDABLE_METHODS):
        return False
    return leaves.is_operator(fn) or getattr(fn, "__module__", None) == "_operator"


_NOT_OVERRIDABLE_METHODS = frozenset({"as_subclass", "__reduce_ex__", "__hash__", "__new__"})
_NOT_OVERRIDABLE = frozenset({torch.Tensor.as_subclass, torch_compat.make_subclass})


def is_accessor(fn: object) -> bool:
    """Return whether ``fn`` is ``Tensor.attr.__get__`` or ``__set__`` or similar. Torch reports attribute
    accesses by these.
    """
    return type(fn) is MethodWrapperType and fake_classes.is_tensor_getset(fn.__self__)


class _Probe(TorchFunctionMode):
    """The tracer's mode while torch's C code runs. It gets the calls that a mode of the program would get."""

    def __init__(self, overrides: Overrides) -> None:
        super().__init__()
        self._overrides = overrides
        self.was_called = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> Any:
        self.was_called = True
        return self._overrides.dispatch(func, types, args, kwargs or {})
