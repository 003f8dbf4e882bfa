"""Wrapper subclasses with ``__torch_dispatch__``: stand-ins of their own class over fakes, with guarded metadata.

Such a tensor is what its ``__tensor_flatten__`` says: inner tensors, by attribute, and a context. Its stand-in is made of
fakes by ``__tensor_unflatten__``; operators on it run the class's own ``__torch_dispatch__`` over fakes, and are one node
of the graph. Stages behind this one take the class apart.
"""

from __future__ import annotations

from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from fxstack_capture.breaks import graph_break
from fxstack_capture.sources import InstanceAttr
from fxstack_capture.torch_side import facts
from fxstack_capture.torch_side.fakes import with_history
from fxstack_capture.torch_side.standin_classes import overrides

if TYPE_CHECKING:
    from fxstack_capture.sources import Source
    from fxstack_capture.torch_side.tracer import TorchTracer

_DEFAULT = torch.Tensor.__torch_function__.__func__  # type: ignore[attr-defined]
_DISABLED = torch._C._disabled_torch_function_impl
_NO_DISPATCH = torch._C._disabled_torch_dispatch_impl  # type: ignore[attr-defined]


def is_wrapper(value: object) -> bool:
    """Whether a value is a tensor of a class that torch can take apart, and no fake of one tensor."""
    return (
        isinstance(value, torch.Tensor)
        and not isinstance(value, FakeTensor)
        and type(value).__torch_dispatch__ is not _NO_DISPATCH  # type: ignore[attr-defined]
        and is_traceable_wrapper_subclass(value)
    )


def why_not_followed(real: torch.Tensor) -> str | None:
    """What about a wrapper tracing has no model of; None if it can be followed."""
    cls = type(real)
    if cls.__module__.startswith(
        ("torch.nested", "torch.distributed", "torch.masked", "torch.sparse")
    ):
        return "is torch's own"
    function = getattr(cls.__torch_function__, "__func__", cls.__torch_function__)
    if function is not _DEFAULT and function is not _DISABLED:
        return "defines __torch_function__ and __torch_dispatch__"
    if real.is_nested or real.layout is not torch.strided:
        return "is not strided"
    return None


class Wrappers:
    """The wrappers of one trace."""

    def __init__(self, tracer: TorchTracer) -> None:
        self._tracer = tracer
        self._made: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._originals: dict[int, tuple[torch.Tensor, Source]] = {}
        self._unguarded: list[torch.Tensor] = []

    @property
    def used(self) -> bool:
        """Whether any have entered."""
        return bool(self._made)

    def original_of(self, standin: torch.Tensor) -> tuple[torch.Tensor, Source] | None:
        """The wrapper (one inside of another, too) that a stand-in stands for, and where it is."""
        return self._originals.get(id(standin))

    def stand_in(self, real: torch.Tensor, source: Source) -> torch.Tensor:
        """The stand-in of a wrapper, with guards for the tensors that it is made of; sizes are those of now."""
        if id(real) not in self._made:
            made = self._stand_in(real, source)
            self._made[id(real)] = real, made
            self._originals[id(made)] = real, source
            self._unguarded.append(made)
        return self._made[id(real)][1]

    def _stand_in(self, real: Any, source: Source) -> torch.Tensor:
        cls: Any = type(real)
        why = why_not_followed(real)
        if why is not None:
            text = f"class {cls.__module__}.{cls.__qualname__}, which {why},"
            raise graph_break("unsupported-tensor", text)
        for name in ("__torch_function__", "__torch_dispatch__", "__tensor_unflatten__"):
            self._tracer.trace.world.classes.lookup(cls, name)  # type: ignore[attr-defined]  # guards it
        attributes, context = real.__tensor_flatten__()
        self._tracer.trace.guard(source, facts.tensor_is(real))
        inner = {name: self._inner(real, name, InstanceAttr(source, name)) for name in attributes}
        with torch.no_grad():
            made: Any = cls.__tensor_unflatten__(inner, context, real.size(), real.stride())
        for name, value in vars(real).items():
            if name not in attributes and isinstance(value, (bool, int, float, str)):
                vars(made).setdefault(name, value)
        if real.requires_grad:
            made.requires_grad_()
            made = made if real.is_leaf else with_history(made)
        return made  # type: ignore[no-any-return]

    def _inner(self, real: torch.Tensor, name: str, source: Source) -> torch.Tensor:
        value = vars(real).get(name)
        if value is None:
            text = f"attribute {name} of a {type(real).__qualname__}"
            raise graph_break("unsupported-tensor", text)
        if is_wrapper(value):
            return self.stand_in(value, source)
        facts.demand_supported(value)
        if type(value) not in facts.PLAIN_CLASSES or value.requires_grad:
            text = f"{type(value).__qualname__} inside of a wrapper"
            raise graph_break("unsupported-tensor", text)
        self._tracer.trace.guard(source, facts.tensor_is(value))
        faker = self._tracer.faker
        return faker.fake(value, value.size(), value.stride(), value.storage_offset())

    def guard_entered(self) -> None:
        """Interpret ``__tensor_flatten__``: what it reads, and all that the context holds, is guarded by value."""
        trace = self._tracer.trace
        while self._unguarded:
            method = trace.world.load_attr(self._unguarded.pop(), "__tensor_flatten__")
            _, context = trace.calls.call(method, (), {})
            _guard_all(self._tracer, context, set())

    def demand_followed(self, args: Any, kwargs: Any) -> bool:
        """Whether torch turns results of a call into wrappers; breaks the graph where modes would see the call."""
        if not self.used:
            return False
        found = [leaf for leaf in tree_leaves((args, kwargs)) if is_wrapper(leaf)]
        if found and self._tracer.overrides.modes:
            raise graph_break(
                "unsupported-tensor", "a wrapper subclass under a torch-function mode"
            )
        return any(overrides(type(leaf)) for leaf in found)

    def demand_unshared(self, storage: int) -> None:
        """Break the graph where an input is written to: what is inside of wrappers may be the same memory."""
        inputs = self._tracer.inputs()
        if any(fake.untyped_storage()._cdata == storage for fake, _, _ in inputs):
            raise graph_break(
                "unsupported-tensor", "a wrapper subclass beside an input that is written to"
            )


def _guard_all(tracer: TorchTracer, value: Any, seen: set[int]) -> None:
    if tracer.is_symbolic(value):
        tracer.specialize(value)
        return
    if isinstance(value, torch.Tensor):
        raise graph_break("unsupported-tensor", "a wrapper subclass with a tensor in its context")
    if id(value) in seen or isinstance(value, (type, FunctionType, ModuleType)):
        return
    seen.add(id(value))
    tracer.trace.world.expand(value)
    parts: list[Any] = []
    if isinstance(value, dict):
        parts += [*value.keys(), *value.values()]
    elif isinstance(value, (tuple, list, set, frozenset)):
        parts += list(value)
    parts += getattr(value, "__dict__", {}).values()
    for part in parts:
        _guard_all(tracer, part, seen)


def demand_wrapped(result: Any) -> None:
    """Torch would make what is a plain tensor one of the class, without what it wraps."""
    if any(isinstance(value, FakeTensor) for value in tree_leaves(result)):
        raise graph_break(
            "unsupported-tensor", "an operator of a wrapper that gives a plain tensor"
        )
