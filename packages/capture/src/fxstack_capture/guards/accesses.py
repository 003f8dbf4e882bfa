"""The access of each class of source: the native access in guard trees, and the same access in Python.

The tables have one row for each class. A new class of source needs a record in ``sources``, a row here, and a
loader in ``emit.loads``. If no native kind does the access, the class needs a new kind in
native/guard_tree/steps.c.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from types import CellType, CodeType, FunctionType
from typing import Any

from fxstack_capture import native, sources, torch_compat
from fxstack_capture.bytecode.arguments import argument_names
from fxstack_capture.guards.weak_references import referent_of
from fxstack_capture.sources import Source

Access = tuple[str, object]
"""A pair: the kind of a native access, and its argument. For example ``("Item", 2)`` or ``("Globals",
None)``.
"""

MISSING: Any = object()
"""``read`` returns this object if the value does not exist. Messages and guard filters test for it."""

_Base = torch_compat.TensorBase
_mro_of = type.__dict__["__mro__"].__get__
_dict_of = type.__dict__["__dict__"].__get__

instance_dict = object.__getattribute__
"""``instance_dict(obj, "__dict__")`` does not call the ``__getattribute__`` of the object's class."""


@dataclass(frozen=True, slots=True)
class RealFrame:
    """The values that a frame can read when it starts."""

    function: FunctionType
    """The function that is called. Its code may be the original of the code that runs."""
    arguments: dict[str, object]
    """The value of each parameter by its name. ``*args`` is one tuple, ``**kwargs`` one dictionary."""
    cells: dict[str, CellType]
    """The cell of each free variable by its name. The cell may be empty."""


def frame_of_call(function: FunctionType, arguments: dict[str, object]) -> RealFrame:
    """Return the frame that a call of ``function`` starts. ``arguments`` maps each parameter name to a value.

    Messages about a failed guard read the values of the call from this frame.
    """
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    return RealFrame(function, arguments, dict(cells))


# --- accesses that run no code of the program ---


def class_attr(cls: type, name: str) -> Any:
    """Return the raw attribute ``name`` found along the MRO of ``cls``. No descriptor is called."""
    for base in _mro_of(cls):
        namespace = _dict_of(base)
        if name in namespace:
            return namespace[name]
    raise AttributeError(f"type object {cls!r} has no attribute {name!r}")


def key_at(container: Any, index: int) -> Any:
    """Return the ``index``-th key of a dictionary or item of a set, in iteration order."""
    kind = dict if isinstance(container, dict) else set if isinstance(container, set) else frozenset
    return next(islice(kind.__iter__(container), index, None))


def value_at(mapping: dict[Any, Any], index: int) -> Any:
    """Return the ``index``-th value of a dictionary in iteration order."""
    return next(islice(dict.values(mapping), index, None))


def item_reader(kind: type) -> Any:
    """Return the builtin class (list, tuple or deque) whose ``__getitem__`` reads an item of an instance of
    ``kind``.

    Replacement code and messages read items by this class, so that no ``__getitem__`` of the program runs.
    """
    for base in (list, tuple, deque):
        if issubclass(kind, base):
            return base
    raise TypeError(f"{kind} has no C-level items")


def _item(value: Any, index: int) -> Any:
    """Return ``value[index]`` of a list, tuple or deque by C code."""
    return item_reader(type(value)).__getitem__(value, index)


# --- the tables ---


def _index(names: tuple[str, ...], name: str, what: str) -> int:
    """Return the position of ``name`` in ``names``. Native accesses name arguments and free variables by position.

    ``what`` is the word for the error message: "argument" or "free variable".
    """
    if name not in names:
        raise ValueError(f"{name!r} is no {what} of this function")
    return names.index(name)


@dataclass(frozen=True, slots=True)
class Root:
    """How to read a source that begins at a frame, such as an argument.

    ``native(source, code)`` returns the access of the guard tree. ``read(source, frame)`` returns the value,
    for Python code.
    """

    native: Callable[[Any, CodeType], Access]
    """Called when a guard tree is built."""
    read: Callable[[Any, RealFrame], Any]
    """Called when Python reads the value, for example for a message."""


@dataclass(frozen=True, slots=True)
class Step:
    """How to read a source that begins at another source, such as an item of a list.

    ``native(source)`` returns the access of the guard tree. ``read(source, value)`` returns the value, for
    Python code. Its argument ``value`` is the value of the other source.
    """

    native: Callable[[Any], Access]
    """Called when a guard tree is built."""
    read: Callable[[Any, Any], Any]
    """Called when Python reads the value, for example for a message."""


def _index_free(source: Any, code: CodeType) -> int:
    """Return the position in ``co_freevars`` of the free variable that ``source`` reads."""
    return _index(code.co_freevars, source.local, "free variable")


ROOTS: dict[type, Root] = {
    sources.Local: Root(
        lambda s, c: ("Local", _index(argument_names(c), s.local, "argument")),
        lambda s, f: f.arguments[s.local],
    ),
    sources.Free: Root(lambda s, c: ("Free", _index_free(s, c)), lambda s, f: f.cells[s.local].cell_contents),
    sources.FreeCell: Root(lambda s, c: ("FreeCell", _index_free(s, c)), lambda s, f: f.cells[s.local]),
    sources.Globals: Root(lambda _s, _c: ("Globals", None), lambda _s, f: f.function.__globals__),
    sources.Pinned: Root(lambda s, _c: ("Pinned", s.value), lambda s, _f: referent_of(s.value)),
}
"""The rows of the sources that begin at a frame."""

STEPS: dict[type, Step] = {
    sources.InstanceDict: Step(lambda _s: ("InstanceDict", None), lambda _s, v: instance_dict(v, "__dict__")),
    sources.InstanceAttr: Step(
        lambda s: ("InstanceAttr", s.attr), lambda s, v: instance_dict(v, "__dict__")[s.attr]
    ),
    sources.SlotAttr: Step(
        lambda s: ("SlotAttr", s.owner.__dict__[s.attr]),
        lambda s, v: referent_of(s.owner).__dict__[s.attr].__get__(v),
    ),
    sources.BuiltinAttr: Step(lambda s: ("BuiltinAttr", s.attr), lambda s, v: getattr(v, s.attr)),
    sources.ClassAttr: Step(lambda s: ("ClassAttr", s.attr), lambda s, v: class_attr(v, s.attr)),
    sources.TypeOf: Step(lambda _s: ("TypeOf", None), lambda _s, v: type(v)),
    sources.Item: Step(lambda s: ("Item", s.index), lambda s, v: _item(v, s.index)),
    sources.Key: Step(lambda s: ("Key", s.key), lambda s, v: dict.__getitem__(v, s.key)),
    sources.KeyAt: Step(lambda s: ("KeyAt", s.index), lambda s, v: key_at(v, s.index)),
    sources.ValueAt: Step(lambda s: ("ValueAt", s.index), lambda s, v: value_at(v, s.index)),
    sources.Upcoming: Step(lambda s: ("Upcoming", s.index), lambda s, v: native.upcoming(v, s.index)),
    sources.Converted: Step(lambda s: ("Converted", s.by), lambda s, v: s.by(v)),
    sources.Cached: Step(lambda s: ("Cached", s.key), lambda s, v: native.cached(v, s.key)),
    sources.Cell: Step(lambda _s: ("Cell", None), lambda _s, v: v.cell_contents),
    sources.Size: Step(lambda s: ("Size", s.dim), lambda s, v: _Base.size(v, s.dim)),
    sources.Stride: Step(lambda s: ("Stride", s.dim), lambda s, v: _Base.stride(v, s.dim)),
    sources.StorageOffset: Step(lambda _s: ("StorageOffset", None), lambda _s, v: _Base.storage_offset(v)),
    sources.Affine: Step(lambda s: ("Affine", (s.scale, s.offset)), lambda s, v: (v - s.offset) // s.scale),
}
"""The rows of the sources that begin at another source."""


def lower_root(source: Source | None, code: CodeType) -> Access:
    """Return the native access of a source that begins at a frame of ``code``.

    The builder of the guard tree calls this function. A ``source`` of None stands for torch's global state.
    """
    if source is None:
        return "Nothing", None
    return ROOTS[type(source)].native(source, code)


def is_instance_key(source: Source | None, key: object) -> bool:
    """Whether ``source`` is the ``__dict__`` of an instance, and ``key`` is a string.

    The native code can then read the attribute ``key`` without creating the dictionary.
    """
    return isinstance(source, sources.InstanceDict) and type(key) is str


def lower_step(source: Source) -> tuple[Source, Access]:
    """Return the source at which ``source`` begins, and the native access that leads from one to the other.

    A string key of an instance dictionary becomes an access to the attribute, which need not create the
    dictionary. The builder of the guard tree calls this function.
    """
    base = source.base
    assert base is not None
    if isinstance(source, sources.Key) and is_instance_key(base, source.key):
        instance = base.base
        assert instance is not None
        return instance, ("InstanceAttr", source.key)
    if type(source) not in STEPS:
        raise ValueError(f"no native access for {type(source).__name__}")
    return base, STEPS[type(source)].native(source)


def follow(source: Source, frame: RealFrame, convert: Callable[[Any, Any], Any] | None = None) -> Any:
    """Return the object at ``source`` in ``frame``. Guards make the same accesses.

    If ``convert`` is given, ``convert(source, value)`` replaces the conversion of a ``Converted`` source.
    """
    # A loop, because a source may have more steps than Python allows nested calls.
    path = []
    while isinstance(source, sources.Step):
        path.append(source)
        source = source.of
    value = ROOTS[type(source)].read(source, frame)
    for step in reversed(path):
        if isinstance(step, sources.ItemAt):
            value = _item(value, follow(step.at, frame, convert))
        elif convert is not None and isinstance(step, sources.Converted):
            value = convert(step, value)
        else:
            value = STEPS[type(step)].read(step, value)
    return value


def read(source: Source, frame: RealFrame) -> Any:
    """Return the value at a source, for a message or a guard filter. Return ``MISSING`` if any access raises."""
    try:
        return follow(source, frame)
    except Exception:
        # In a frame that the guards reject, the path may lead nowhere.
        return MISSING
