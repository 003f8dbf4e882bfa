"""Expressions that reload the value of a source: one table entry per class of source."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any

from fxstack_capture import native, torch_compat
from fxstack_capture import sources as s
from fxstack_capture.emit import runtime
from fxstack_capture.emit.builder import Builder, attribute, call, item, load
from fxstack_capture.emit.resolve import resolve
from fxstack_capture.guards import accesses
from fxstack_capture.guards.accesses import RealFrame, item_reader
from fxstack_capture.trace.random_draws import Draw

_Base = torch_compat.TensorBase


class Loads:
    """Reload values in the ``loads`` section of a replacement.

    Every source, and every prefix of a source, is read once.
    """

    def __init__(self, builder: Builder, frame: RealFrame) -> None:
        self._builder = builder
        self.frame = frame
        self._known: dict[s.Source, ast.expr] = {}
        """The expression of each source that was read."""

    def expr(self, source: s.Source) -> ast.expr:
        """Return a name or a cheap expression for the value of ``source`` at the start of the frame.

        The first call for a source emits the read.
        """
        expression = self._known.get(source)
        if expression is None:
            expression = self._known[source] = _LOADERS[type(source)](self, source)
        return expression

    def draw(self, draws: Iterable[Draw]) -> None:
        """Emit the draws from random generators, in the order of the program. ``FrameWriter`` calls this
        before other reads.
        """
        for draw in draws:
            # Each draw advances its generator, so the number and the order of the draws are visible to the program.
            function = self.constant(_disable_compile(draw.function), draw.function.__name__)
            named = [ast.keyword(n, self.constant(v, n)) for n, v in draw.kwargs.items()]
            positional = [
                self.expr(draw.generator),
                *(self.constant(value, "argument") for value in draw.args),
            ]
            self._known[draw.result] = self.temporary(ast.Call(function, positional, named), draw.result)

    def states(self, draws: Iterable[Draw]) -> ast.expr:
        """Emit the read of the states of the generators in ``draws``. The read comes before the draws.

        Return the expression of the states. The fallback to eager restores these states.
        """
        generators = dict.fromkeys(draw.generator for draw in draws)
        read = self.constant(runtime.generator_states, "generator_states")
        states = call(read, *map(self.expr, generators))
        return self._builder.assign(self._builder.loads, states, "states")

    def constant(self, value: object, hint: str) -> ast.expr:
        """Return an expression for any object, as ``Builder.constant`` does."""
        return self._builder.constant(value, hint)

    def temporary(self, value: ast.expr, source: s.Source) -> ast.expr:
        """Emit ``value``, the expression that reads ``source``, and return the variable that holds the result."""
        return self._builder.assign(self._builder.loads, value, source.name)

    def kind_of(self, source: s.Source) -> type:
        """Return the exact class of the value at ``source`` in the frame that is compiled now.

        The guards of the entry demand this class.
        """
        return type(resolve(source, self.frame))


def _disable_compile(function: Callable[..., Any]) -> Any:
    """Return a wrapper of ``function``. While the wrapper runs, no frame is compiled."""
    return native.Disabled(function) if native.AVAILABLE else function


def _local(_: Loads, source: s.Local | s.Free) -> ast.expr:
    """Read a parameter or a free variable by its name."""
    return load(source.local)


def _free_cell(loads: Loads, source: s.FreeCell) -> ast.expr:
    """Read the cell of a free variable, from the closure of a lambda."""
    # No expression returns a cell of the running frame. A lambda that reads the variable has the same cell.
    nothing = ast.arguments([], [], None, [], [], None, [])
    closure = attribute(ast.Lambda(nothing, load(source.local)), "__closure__")
    return loads.temporary(item(closure, ast.Constant(0)), source)


def _globals(loads: Loads, source: s.Globals) -> ast.expr:
    """Read the globals of the frame."""
    # Call ``globals`` as a constant, because the program may have its own variable of this name.
    return loads.temporary(call(loads.constant(globals, "globals")), source)


def _pinned(loads: Loads, source: s.Pinned) -> ast.expr:
    """Read an object that the replacement holds as a constant."""
    return loads.constant(source.value, source.label)


def _instance_dict(loads: Loads, source: s.InstanceDict) -> ast.expr:
    """Read ``__dict__`` without running code of the class."""
    getter = loads.constant(accesses.instance_dict, "instance_dict")
    value = call(getter, loads.expr(source.of), ast.Constant("__dict__"))
    return loads.temporary(value, source)


def _instance_attr(loads: Loads, source: s.InstanceAttr) -> ast.expr:
    """Read an attribute from the instance dictionary. Descriptors and overrides do not run."""
    namespace = loads.expr(s.InstanceDict(source.of))
    return loads.temporary(item(namespace, ast.Constant(source.attr)), source)


def _slot_attr(loads: Loads, source: s.SlotAttr) -> ast.expr:
    """Read a slot or C-level member through the descriptor of the class that defines it."""
    getter = loads.constant(source.owner.__dict__[source.attr].__get__, f"get_{source.attr}")
    return loads.temporary(call(getter, loads.expr(source.of)), source)


def _builtin_attr(loads: Loads, source: s.BuiltinAttr) -> ast.expr:
    """Read an attribute by plain syntax. This lookup runs no code of the program."""
    return loads.temporary(attribute(loads.expr(source.of), source.attr), source)


def _class_attr(loads: Loads, source: s.ClassAttr) -> ast.expr:
    """Read the raw attribute along the MRO of a class. No descriptor is called."""
    getter = loads.constant(accesses.class_attr, "class_attr")
    return loads.temporary(call(getter, loads.expr(source.of), ast.Constant(source.attr)), source)


def _type_of(loads: Loads, source: s.TypeOf) -> ast.expr:
    """Read the class of an object. ``__class__`` may name another class."""
    return loads.temporary(call(loads.constant(type, "type"), loads.expr(source.of)), source)


def _item(loads: Loads, source: s.Item | s.ItemAt) -> ast.expr:
    """Read an item of a list, tuple or other sequence."""
    kind = list if isinstance(source.of, s.Drawn) else loads.kind_of(source.of)
    reader = item_reader(kind)
    of = loads.expr(source.of)
    index = loads.expr(source.at) if isinstance(source, s.ItemAt) else ast.Constant(source.index)
    if kind is reader:
        return loads.temporary(item(of, index), source)
    getter = loads.constant(reader.__getitem__, f"{reader.__name__}_getitem")
    return loads.temporary(call(getter, of, index), source)


def _key(loads: Loads, source: s.Key) -> ast.expr:
    """Read the value of a key. For a subclass of dict the builtin method reads it, so that no override runs."""
    of, key = loads.expr(source.of), loads.constant(source.key, "key")
    if loads.kind_of(source.of) is dict:
        return loads.temporary(item(of, key), source)
    getter = loads.constant(dict.__getitem__, "dict_getitem")
    return loads.temporary(call(getter, of, key), source)


def _at(function: Callable[..., Any]) -> Callable[[Loads, Any], ast.expr]:
    """Return a loader that calls ``function(container, index)``.

    The loader reads a key, a value or an upcoming item by its position.
    """

    def load_at(loads: Loads, source: s.KeyAt | s.ValueAt | s.Upcoming) -> ast.expr:
        """Read the part of the container at ``source.index``."""
        getter = loads.constant(function, function.__name__)
        return loads.temporary(call(getter, loads.expr(source.of), ast.Constant(source.index)), source)

    return load_at


def _converted(loads: Loads, source: s.Converted) -> ast.expr:
    """Read ``by(value)``, a value computed from another source."""
    by = loads.constant(source.by, source.by.__name__)
    return loads.temporary(call(by, loads.expr(source.of)), source)


def _cached(loads: Loads, source: s.Cached) -> ast.expr:
    """Read the result that a ``functools.lru_cache`` already holds for the key of the source."""
    getter, key = loads.constant(native.cached, "cached"), loads.constant(source.key, "key")
    return loads.temporary(call(getter, loads.expr(source.of), key), source)


def _cell(loads: Loads, source: s.Cell) -> ast.expr:
    """Read the content of a cell."""
    return loads.temporary(attribute(loads.expr(source.of), "cell_contents"), source)


def _tensor_number(method: Callable[..., Any]) -> Callable[[Loads, Any], ast.expr]:
    """Return a loader that reads a size, stride or storage offset of a tensor by ``method``."""

    def load_number(loads: Loads, source: Any) -> ast.expr:
        """Read the number. For a size or stride, the dimension is an argument."""
        arguments = [] if isinstance(source, s.StorageOffset) else [ast.Constant(source.dim)]
        getter = loads.constant(method, method.__name__)
        return loads.temporary(call(getter, loads.expr(source.of), *arguments), source)

    return load_number


def _affine(loads: Loads, source: s.Affine) -> ast.expr:
    """Read the integer ``n`` for which ``scale * n + offset`` equals the number at ``source.of``."""
    shifted = ast.BinOp(loads.expr(source.of), ast.Sub(), ast.Constant(source.offset))
    return loads.temporary(ast.BinOp(shifted, ast.FloorDiv(), ast.Constant(source.scale)), source)


_LOADERS: dict[type, Callable[[Loads, Any], ast.expr]] = {
    s.Local: _local,
    s.Free: _local,
    s.FreeCell: _free_cell,
    s.Globals: _globals,
    s.Pinned: _pinned,
    s.InstanceDict: _instance_dict,
    s.InstanceAttr: _instance_attr,
    s.SlotAttr: _slot_attr,
    s.BuiltinAttr: _builtin_attr,
    s.ClassAttr: _class_attr,
    s.TypeOf: _type_of,
    s.Item: _item,
    s.ItemAt: _item,
    s.Key: _key,
    s.KeyAt: _at(accesses.key_at),
    s.ValueAt: _at(accesses.value_at),
    s.Upcoming: _at(native.upcoming),
    s.Converted: _converted,
    s.Cached: _cached,
    s.Cell: _cell,
    s.Size: _tensor_number(_Base.size),
    s.Stride: _tensor_number(_Base.stride),
    s.StorageOffset: _tensor_number(_Base.storage_offset),
    s.Affine: _affine,
}
