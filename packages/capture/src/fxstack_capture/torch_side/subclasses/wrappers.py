"""Wrapper subclasses with ``__torch_dispatch__``: fakes of the wrapper's class over inner fakes.

``__tensor_flatten__`` describes a wrapper by its inner tensors, each with its attribute, and a context.
``__tensor_unflatten__`` constructs the fake of the wrapper from inner fakes. An operator on the wrapper is
one node of the graph. On fakes, the operator runs the class's own ``__torch_dispatch__``. Later stages take
the wrapper apart.

The program may also construct wrappers (``torch.Tensor._make_wrapper_subclass``). The interpreter runs
``__new__`` and ``__init__`` of the class, which add inner tensors and other attributes. If the program only
reads the inner tensors, the graph never has the wrapper. If an operator uses the wrapper, a node constructs
it by ``__tensor_unflatten__``. If the wrapper leaves the graph, the replacement code constructs it by the
program's own call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import calls_program
from fxstack_capture.shapes.geometry import static_numbers
from fxstack_capture.sources import InstanceAttr, SlotAttr, Source
from fxstack_capture.torch_compat import FakeTensor, tree_leaves
from fxstack_capture.torch_side.autograd.autograd_function import Applied
from fxstack_capture.torch_side.fakes import fake_inputs
from fxstack_capture.torch_side.fakes.faker import with_history
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.torch_side.subclasses.fake_classes import overrides
from fxstack_capture.torch_side.subclasses.wrapper_classes import (
    defines_torch_function,
    is_wrapper,
    unsupported_wrapper_reason,
)
from fxstack_capture.trace.late_guards.class_reads import raw_lookup
from fxstack_capture.trace.records import Construction
from fxstack_capture.trace.state import Args, Kwargs

# Limits: five things break the graph. The first is a write to a wrapper that the program has made in the
# trace. The second is an operator that gives an input wrapper other inner tensors or another context. The
# third is the use of a wrapper under a torch-function mode. The fourth is a class that does not return the
# symbolic sizes that it was given. The fifth is a ``__tensor_unflatten__`` that does not use the given inner
# tensors, or that gives another class.


class Wrappers:
    """The wrappers of one trace."""

    def __init__(self, tracer: TracerProtocol) -> None:
        self._tracer = tracer
        self._fakes: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._originals: dict[int, tuple[torch.Tensor, Source]] = {}
        self._unguarded: list[torch.Tensor] = []
        self._inner_inputs: list[tuple[torch.Tensor, Source]] = []
        self._constructed: dict[int, Construction] = {}
        self._parts: list[tuple[torch.Tensor, dict[str, torch.Tensor], object]] = []
        """The fake of each input wrapper, with its inner tensors and its context."""
        self.used = False
        """Whether the trace has wrappers."""

    @property
    def count(self) -> int:
        """Number of wrappers that the program has constructed."""
        return len(self._constructed)

    def has_torch_function(self, value: object) -> bool:
        """Return whether ``value`` is a wrapper, and torch would call its ``__torch_function__``."""
        return self.used and is_wrapper(value) and defines_torch_function(type(value))

    def original_of(self, fake: torch.Tensor) -> tuple[torch.Tensor, Source] | None:
        """Return the real wrapper and the source for a fake, or None. The wrapper may be inside of another
        wrapper.
        """
        return self._originals.get(id(fake))

    def fake_of(self, real: torch.Tensor, source: Source) -> torch.Tensor:
        """Return the fake of a wrapper, with the sizes of this call. The inner tensors are guarded."""
        if id(real) not in self._fakes:
            self.used = True
            fake = self._fake_of(real, source)
            self._fakes[id(real)] = real, fake
            self._originals[id(fake)] = real, source
            self._parts.append((fake, *_flatten(fake)))
            self._unguarded.append(fake)
        return self._fakes[id(real)][1]

    def _fake_of(self, real: Any, source: Source) -> torch.Tensor:
        """Make the fake of a wrapper by ``__tensor_unflatten__`` from inner fakes. The class and the geometry
        are guarded. Break the graph if the result has another class.
        """
        cls: Any = type(real)
        self._demand_class(cls, real)
        attributes, context = real.__tensor_flatten__()
        tracer = self._tracer
        plan = fake_inputs.plan_geometry(tracer, real, source)
        is_static = plan.static
        sizes, strides, _ = (
            tracer.geometry.tensor(real, source, plan) if not is_static else (real.size(), real.stride(), 0)
        )
        tracer.trace.guard(
            source, fake_inputs.tensor_is(real, static_numbers(sizes), static_numbers(strides))
        )
        inner = {name: self._inner(real, name, source, sizes) for name in attributes}
        with torch.no_grad():
            fake: Any = cls.__tensor_unflatten__(inner, context, sizes, strides)
        if type(fake) is not cls:
            text = f"a {cls.__qualname__}, which comes back as a {type(fake).__qualname__}"
            raise graph_break("unsupported-tensor", text)
        _demand_inner_kept(fake, inner.keys(), inner.values())
        if not is_static:
            _demand_same((*fake.size(), *fake.stride()), (*sizes, *strides), cls)
        for name, value in vars(real).items():
            if name not in attributes and isinstance(value, (bool, int, float, str)):
                vars(fake).setdefault(name, value)
        if real.requires_grad:
            fake.requires_grad_()
            fake = fake if real.is_leaf else with_history(fake)
        return fake

    def _demand_class(self, cls: type, example: torch.Tensor) -> None:
        """Break the graph for an unsupported class. Guard the methods that tell torch how to treat the class."""
        why = unsupported_wrapper_reason(cls, example)
        if why is not None:
            text = f"class {cls.__module__}.{cls.__qualname__}, which {why},"
            raise graph_break("unsupported-tensor", text)
        for name in ("__torch_function__", "__torch_dispatch__", "__tensor_unflatten__"):
            self._tracer.trace.objects.classes.lookup(cls, name)  # records a guard

    def _inner(
        self, real: torch.Tensor, name: str, of: Source, outer: Sequence[int | torch.SymInt]
    ) -> torch.Tensor:
        """Return the fake of the inner tensor ``name``. Record the tensor as an input. Break the graph for
        any other subclass, and for a tensor that requires grad.
        """
        value, source = _inner_tensor(real, name, of)
        self._inner_inputs.append((value, source))
        if is_wrapper(value):
            return self.fake_of(value, source)
        fake_inputs.demand_supported(value)
        if type(value) not in fake_inputs.PLAIN_CLASSES or value.requires_grad:
            text = f"{type(value).__qualname__} inside of a wrapper"
            raise graph_break("unsupported-tensor", text)
        return self._inner_fake(real, value, source, outer)

    def _inner_fake(
        self, real: torch.Tensor, value: torch.Tensor, source: Source, outer: Sequence[int | torch.SymInt]
    ) -> FakeTensor:
        """Return the fake of ``value``, an inner tensor of the wrapper ``real``.

        ``outer`` are the sizes of the wrapper's fake. If ``value`` has the size of ``real``, a new fake gets
        the sizes ``outer``. The inner tensors of a parameter have constant sizes.
        """
        tracer = self._tracer
        existing = fake_inputs.existing_fake(tracer, value, source)
        if existing is not None:
            return existing
        if isinstance(real, torch.nn.Parameter):
            return fake_inputs.make_static(tracer, value, source)
        plan = fake_inputs.plan_geometry(tracer, value, source)
        sizes = outer if value.size() == real.size() else None
        if plan.static and (sizes is None or all(type(size) is int for size in sizes)):
            return fake_inputs.make_static(tracer, value, source)
        geometry = tracer.geometry.tensor(value, source, plan, sizes)
        return fake_inputs.make_symbolic(tracer, value, source, geometry)

    # --- constructed in the trace ----------------------------------------------------------------

    def construct(self, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> torch.Tensor:
        """Return the fake of a new wrapper. This is the rule of ``torch.Tensor._make_wrapper_subclass``."""
        self.used = True
        with self._tracer.unrecorded():
            construction = _construct(fn, args, kwargs)
            self._demand_class(args[0], construction.made)
        self._constructed[id(construction.made)] = construction
        return construction.made

    def construction_of(self, tensor: torch.Tensor) -> Construction | None:
        """Return the call by which the program constructed a wrapper in this trace. None for any other
        tensor.
        """
        return self._constructed.get(id(tensor))

    def construct_node(self, wrapper: torch.Tensor) -> torch.fx.Node | None:
        """Add a node that constructs a new wrapper. Return None for any other tensor."""
        if id(wrapper) not in self._constructed:
            return None
        tracer = self._tracer
        with tracer.unrecorded():
            target, inner = _unflatten_target(wrapper)
            parts = (inner, tuple(wrapper.size()), wrapper.stride())
        args = tuple(tracer.builder.argument(part, []) for part in parts)
        node = tracer.builder.add("call_function", target, args, {})
        tracer.annotate(node)
        node.meta.update(val=wrapper, example_value=wrapper)
        return node

    def demand_unused(self, tensor: torch.Tensor, name: str) -> None:
        """Break the graph for an assignment to a wrapper, unless the trace has made the wrapper and no
        operator has used it yet.
        """
        if id(tensor) not in self._constructed or self._tracer.builder.is_known(tensor):
            cls = type(tensor).__qualname__
            raise graph_break("unsupported-object", f"assignment to {name} of a {cls}")

    def guard_entered(self) -> None:
        """Wrap the inner tensors of new input wrappers as inputs. Guard all other parts.

        Called after the trace has wrapped a tensor.
        """
        # Inner tensors are inputs. They get the guards on the identity of inputs.
        while self._inner_inputs:
            self._tracer.trace.objects.enter(*self._inner_inputs.pop())
        while self._unguarded:
            self._guard(self._unguarded.pop())

    def guard_constructed(self, args: object, kwargs: object) -> None:
        """Guard the parts of those wrappers among the arguments that were made in the trace."""
        for leaf in tree_leaves((args, kwargs)):
            if id(leaf) in self._constructed and not self._tracer.builder.is_known(leaf):
                self._guard(leaf)

    def _guard(self, fake: torch.Tensor) -> None:
        """Interpret ``__tensor_flatten__``, which adds its guards. Guard the whole context by value."""
        trace = self._tracer.trace
        method = trace.objects.load_attr(fake, "__tensor_flatten__")
        _, context = trace.calls.call(method, (), {})
        _guard_all(self._tracer, context, set())

    def demand_supported(self, fn: Callable[..., Any], args: object, kwargs: object) -> bool:
        """Return whether torch wraps the results of the call.

        The graph breaks if a mode of the program would see the call.
        """
        if not self.used:
            return False
        wrappers = [leaf for leaf in tree_leaves((args, kwargs)) if is_wrapper(leaf)]
        if wrappers and self._tracer.overrides.modes:
            raise graph_break("unsupported-tensor", "a wrapper subclass under a torch-function mode")
        if self._tracer.overrides.level or fn is getattr or isinstance(fn, Applied):
            return False
        return any(overrides(type(leaf)) and not defines_torch_function(type(leaf)) for leaf in wrappers)

    def note_written(self, tensor: torch.Tensor) -> None:
        """Record a write to a wrapper, or to a view of a wrapper, as writes to its inner tensors. Break the
        graph for a wrapper that the trace has made.
        """
        if id(tensor) in self._constructed:  # the inner tensors may be any tensors of the trace
            raise graph_break("unsupported-tensor", "a new wrapper subclass that is written to")
        inner, _context = _flatten(tensor)
        for part in inner.values():
            self._tracer.note_mutated(part)

    def demand_same_parts(self) -> None:
        """Break the graph if an operator has given an input wrapper other inner tensors, or another context.

        The replacement code could not give these to the program's wrapper.
        """
        for wrapper, inner, context in self._parts:
            now, context_now = _flatten(wrapper)
            same = now.keys() == inner.keys() and all(now[name] is part for name, part in inner.items())
            if not same or context_now != context:
                text = (
                    f"a {type(wrapper).__qualname__} whose operators replace its inner tensors or its context"
                )
                raise graph_break("unsupported-tensor", text)


def _flatten(wrapper: Any) -> tuple[dict[str, torch.Tensor], object]:
    """Return the inner tensors of a wrapper (attribute -> tensor), and its context."""
    names, context = wrapper.__tensor_flatten__()
    return {name: getattr(wrapper, name) for name in names}, context


def _inner_tensor(real: torch.Tensor, name: str, source: Source) -> tuple[torch.Tensor, Source]:
    """Return an inner tensor and its source. The tensor is in the instance dictionary or in a slot. Break the
    graph for any other attribute.
    """
    if name in vars(real):
        return vars(real)[name], InstanceAttr(source, name)
    slot = raw_lookup(type(real), name)
    if type(slot) is not MemberDescriptorType:
        text = f"attribute {name} of a {type(real).__qualname__}"
        raise graph_break("unsupported-tensor", text)
    return slot.__get__(real), SlotAttr(source, slot.__objclass__, name)


def _demand_same(sizes: Sequence[Any], expected: Sequence[Any], cls: type) -> None:
    """Break the graph if the sizes that the class returns differ from the given sizes. The comparison adds
    guards.
    """
    if len(sizes) != len(expected) or any(a != b for a, b in zip(sizes, expected, strict=True)):
        text = f"a {cls.__qualname__} of symbolic size, which comes back with another size"
        raise graph_break("unsupported-tensor", text)


def _guard_all(tracer: TracerProtocol, value: object, seen: set[int]) -> None:
    """Guard a value, and all values that it contains, by value. Break the graph for a tensor."""
    if tracer.is_symbolic(value):
        tracer.specialize(value)
        return
    if isinstance(value, torch.Tensor):
        raise graph_break("unsupported-tensor", "a wrapper subclass with a tensor in its context")
    if id(value) in seen or isinstance(value, (type, FunctionType, ModuleType)):
        return
    seen.add(id(value))
    tracer.trace.objects.expand(value)
    parts: list[Any] = []
    if isinstance(value, dict):
        parts += [*value.keys(), *value.values()]
    elif isinstance(value, (tuple, list, set, frozenset)):
        parts += list(value)
    parts += getattr(value, "__dict__", {}).values()
    for part in parts:
        _guard_all(tracer, part, seen)


def demand_wrapped(result: object) -> None:
    """Break the graph if an operator returns a plain tensor."""
    # torch would change the class of the plain tensor to the wrapper class. Such a wrapper would have no
    # inner tensors.
    if any(isinstance(value, FakeTensor) for value in tree_leaves(result)):
        raise graph_break("unsupported-tensor", "an operator of a wrapper that gives a plain tensor")


class UnflattenTarget:
    """The target of a node that constructs a wrapper of class ``cls`` from its inner tensors."""

    __slots__ = ("__name__", "cls", "context", "names")

    def __init__(self, cls: Any, names: tuple[str, ...], context: object) -> None:
        self.__name__ = f"put_together_{cls.__name__}"
        self.cls = cls
        self.names = names
        self.context = context

    def __call__(
        self, inner: tuple[torch.Tensor, ...], size: tuple[int, ...], stride: tuple[int, ...]
    ) -> Any:
        parts = dict(zip(self.names, inner, strict=True))
        return self.cls.__tensor_unflatten__(parts, self.context, size, stride)


@calls_program
def _construct(function: Callable[..., Any], args: Args, kwargs: Any) -> Construction:
    """Run ``torch.Tensor._make_wrapper_subclass``. Break the graph if the result requires grad."""
    # A wrapper that requires grad is a new leaf.
    wrapper = function(*args, **kwargs)
    if wrapper.requires_grad:
        name = type(wrapper).__qualname__
        raise graph_break("unsupported-tensor", f"a new {name} that requires a gradient")
    return Construction(wrapper, function, args, kwargs)


def _unflatten_target(wrapper: Any) -> tuple[UnflattenTarget, tuple[torch.Tensor, ...]]:
    """Return the target that constructs the wrapper, and the inner tensors."""
    names, context = wrapper.__tensor_flatten__()
    inner = tuple(getattr(wrapper, name) for name in names)
    target = UnflattenTarget(type(wrapper), tuple(names), context)
    _demand_inner_kept(target(inner, tuple(wrapper.size()), wrapper.stride()), names, inner)
    return target, inner


def _demand_inner_kept(wrapper: object, names: Iterable[str], inner: Iterable[torch.Tensor]) -> None:
    """Break the graph if ``__tensor_unflatten__`` does not use the given inner tensors."""
    for name, tensor in zip(names, inner, strict=True):
        attribute = getattr(wrapper, name)
        if type(attribute) is not type(tensor) or (
            type(tensor) is FakeTensor
            and attribute.untyped_storage()._cdata != tensor.untyped_storage()._cdata
        ):
            text = f"a {type(wrapper).__qualname__}, whose __tensor_unflatten__ changes {name}"
            raise graph_break("unsupported-tensor", text)
