"""Texts for guard checks: the condition of each check, and the difference of a value that fails the check.

``condition`` is the condition as Python. It has three functions that Python lacks: ``unchanged(x)`` (``x`` is the
object of the trace), ``marks(x)`` (dimensions by mark), ``share_memory(x, y)``.
"""

from __future__ import annotations

import builtins
import inspect
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import sympy
import torch
from torch.utils._sympy.printers import PythonPrinter

from fxstack_capture.guards import records
from fxstack_capture.guards.kept import held
from fxstack_capture.guards.tensors import tensor_facts
from fxstack_capture.guards.text import class_name, short
from fxstack_capture.guards.torch_state import TorchState, difference, snapshot
from fxstack_capture.sources import Source

Reader = Callable[[Source], Any]


def _numbers(values: tuple[int | None, ...] | None) -> str:
    if values is None:
        return "any"
    return "(" + ", ".join("*" if value is None else str(value) for value in values) + ")"


def _tensor_words(facts: records.TensorIs) -> dict[str, str]:
    return {
        "class": short(facts.cls),
        "dtype": str(facts.dtype),
        "device": str(facts.device),
        "layout": str(facts.layout),
        "requires_grad": str(facts.requires_grad),
        "sizes": _numbers(facts.sizes),
        "strides": _numbers(facts.strides),
        "storage_offset": str(facts.storage_offset),
        "is_leaf": str(facts.is_leaf),
        "dispatch keys": hex(facts.keyset),
    }


def _tensor_demand(check: records.TensorIs) -> str:
    w = _tensor_words(check)
    return (
        f"must be a {w['class']} of {w['dtype']} on {w['device']}, sizes {w['sizes']}, "
        f"strides {w['strides']}, requires_grad={w['requires_grad']}"
    )


def _match(
    demanded: tuple[int | None, ...] | None, found: tuple[int | None, ...] | None
) -> tuple[int | None, ...] | None:
    """Return the found numbers, with None for the dimensions that are not demanded."""
    if demanded is None or found is None or len(demanded) != len(found):
        return None if demanded is None else found
    return tuple(None if d is None else f for d, f in zip(demanded, found, strict=True))


def _tensor_found(check: records.TensorIs, value: object, _read: Reader) -> str:
    if not isinstance(value, torch.Tensor):
        return f"it is a {class_name(type(value))}"
    facts = tensor_facts(value)
    old, new = _tensor_words(check), _tensor_words(facts)
    new["sizes"] = _numbers(_match(check.sizes, facts.sizes))
    new["strides"] = _numbers(_match(check.strides, facts.strides))
    new["storage_offset"] = str(check.storage_offset and value.storage_offset())
    new["is_leaf"] = str(check.is_leaf if check.is_leaf is None else value.is_leaf)
    changes = [f"{name} is {new[name]} (was {old[name]})" for name in old if old[name] != new[name]]
    return ", ".join(changes) or "another property of the tensor changed"


def _attribute(value: object) -> str:
    return "missing" if value is records.NOT_FOUND else short(value)


def _class_changes(check: records.ClassUnchanged, cls: object, _read: Reader) -> str:
    if not isinstance(cls, type):
        return f"it is {short(cls)}"
    found = {
        name: next((c.__dict__[name] for c in cls.__mro__ if name in c.__dict__), records.NOT_FOUND)
        for name in check.names
    }
    changed = [
        f"{class_name(cls)}.{name} is {_attribute(found[name])} (was {_attribute(old)})"
        for name, old in zip(check.names, check.values, strict=True)
        if found[name] is not held(old)
    ]
    bases = tuple(map(held, check.mro))
    if bases and bases != cls.__mro__:
        found_names, old_names = (
            ", ".join("a class that no longer exists" if c is None else class_name(c) for c in mro[1:])
            for mro in (cls.__mro__, bases)
        )
        changed.append(f"the bases of {class_name(cls)} are {found_names} (were {old_names})")
    return ", ".join(changed) or f"the class is {class_name(cls)}"


def _kept_of_class(check: records.ClassUnchanged) -> str:
    attributes = f"attributes {', '.join(check.names)}" if check.names else ""
    return " and ".join(filter(None, (attributes, "bases" if check.mro else "")))


def _member_changes(check: records.MembersAre, value: Any, _read: Reader) -> str:
    there = [f"the key {name} exists" for name in check.absent if name in value]
    filled = [f"{name} is {short(value.get(name))}" for name in check.empty if value.get(name) != {}]
    return ", ".join((*there, *filled)) or "the dictionary has changed back since the check"


def _keys(value: Any) -> tuple[object, ...]:
    return tuple(dict.keys(value)) if isinstance(value, dict) else tuple(value)


def _length(value: Any) -> str:
    try:
        return str(len(value))
    except Exception:
        return "unknown"


def _shape_found(check: records.ShapeHolds, _value: object, read: Reader) -> str:
    values = ", ".join(f"{source.name} = {short(read(source))}" for _symbol, source in check.symbols)
    return f"now {values}"


def _marks(names: tuple[str, ...], dims: tuple[Any, ...]) -> str:
    shown = [f"{name} {sorted(marked)}" for name, marked in zip(names, dims, strict=True) if marked]
    return ", ".join(shown) or "none"


def _marks_found(check: records.MarksWithin, value: object, _read: Reader) -> str:
    if not isinstance(value, torch.Tensor):
        return f"it is a {class_name(type(value))}"
    return f"the marks are {_marks(check.names, tuple(value.__dict__.get(n, ()) for n in check.names))}"


def _others(check: records.AllDistinct | records.NoOverlap | records.SharesStorage) -> str:
    return ", ".join(source.name for source in check.others)


_DEMANDS: dict[type, Callable[[Any], str]] = {
    records.TypeIs: lambda c: f"must be of type {short(c.cls)}",
    records.WordIs: lambda _c: "must be an int with an absolute value below 2**62",
    records.IdentityIs: lambda c: f"must be the same object as before, {short(c.obj)}",
    records.Equals: lambda c: f"must be {short(c.value)}",
    records.LengthIs: lambda c: f"must have length {c.length}",
    records.KeysAre: lambda c: (
        f"must have the keys {short(c.keys)}" + (" in this order" if c.ordered else "")
    ),
    records.HasKey: lambda c: f"must {'' if c.present else 'not '}have the key {c.key!r}",
    records.MembersAre: lambda c: (
        f"must not have the keys {', '.join(c.absent)}, and the dictionaries {', '.join(c.empty)} must be empty"
    ),
    records.SlotUnset: lambda c: f"must have no value in the slot {c.attr}",
    records.CellEmpty: lambda _c: "must be an empty cell",
    records.RangeIs: lambda c: f"must be range({c.start}, {c.stop}, {c.step})",
    records.ClassUnchanged: lambda c: f"must keep its {_kept_of_class(c)}",
    records.SubclassIs: lambda c: f"must {'' if c.answer else 'not '}be a subclass of {short(c.cls)}",
    records.TensorIs: _tensor_demand,
    records.MarksWithin: lambda c: f"must not have marks other than {_marks(c.names, c.dims)}",
    records.SameObject: lambda c: f"must be the same object as {c.other.name}",
    records.AllDistinct: lambda c: (
        f"must not be the same object as {_others(c)}, and no two of these may be the same object"
        if len(c.others) > 1
        else f"must not be the same object as {_others(c)}"
    ),
    records.NoOverlap: lambda c: (
        f"must not share memory with {_others(c)}, and no two of these may share memory"
        if len(c.others) > 1
        else f"must not share memory with {_others(c)}"
    ),
    records.SharesStorage: lambda c: f"must share memory with {_others(c)}",
    records.ShapeHolds: lambda c: f"must satisfy {c.text}",
    records.TorchStateIs: lambda _c: "torch's global state must be unchanged",
}

_FOUND: dict[type, Callable[[Any, Any, Any], str]] = {
    records.TypeIs: lambda _c, v, _r: f"it is a {class_name(type(v))}",
    records.WordIs: lambda _c, v, _r: f"it is {short(v)}",
    records.LengthIs: lambda _c, v, _r: f"its length is {_length(v)}",
    records.KeysAre: lambda _c, v, _r: f"the keys are {short(_keys(v))}",
    records.HasKey: lambda c, _v, _r: f"the key {'is missing' if c.present else 'exists'}",
    records.MembersAre: _member_changes,
    records.SlotUnset: lambda _c, _v, _r: "the slot has a value",
    records.CellEmpty: lambda _c, _v, _r: "the cell has a value",
    records.ClassUnchanged: _class_changes,
    records.TensorIs: _tensor_found,
    records.MarksWithin: _marks_found,
    records.SubclassIs: lambda c, _v, _r: f"it is {'not ' if c.answer else ''}a subclass",
    records.SameObject: lambda _c, _v, _r: "the two objects are different",
    records.AllDistinct: lambda _c, _v, _r: "two of the objects are the same",
    records.NoOverlap: lambda _c, _v, _r: "two of the tensors share memory",
    records.SharesStorage: lambda _c, _v, _r: "one of the tensors does not share memory",
    records.ShapeHolds: _shape_found,
}


def demand(check: records.Check) -> str:
    """Return the text of a check's condition, for example "must be of type int"."""
    return _DEMANDS[type(check)](check)


def found(check: records.Check, value: object, read: Reader) -> str:
    """Return the text of a value that fails the check. ``read`` reads the sources of other values."""
    describe = _FOUND.get(type(check))
    try:
        return describe(check, value, read) if describe else f"it is {short(value)}"
    except Exception as error:  # a class of the program may break len, keys or attribute access
        return f"showing the value raised {type(error).__name__}"


_HIDDEN: Final = re.compile(r"(?<![\w\])])\.[a-z]*\d*(?!\w)")
"""Arguments without a name in the program: those of resume functions, and the iterable of a comprehension."""
_ITERATED: Final = re.compile(rf"next\({_HIDDEN.pattern}\)")
_KEPT: Final = "a value of an expression or loop"
_OF_MODULE: Final = re.compile(r"globals of ([\w.]+)(\['(\w+)'\])?")
_OF_NAMESPACE: Final = re.compile(r"\bglobals\(\)\['(\w+)'\]|<cell (\w+)>\.cell_contents|\b__main__\.")
_MOST_NAMES: Final = 8


def without_hidden(name: str) -> str:
    """Return the name of a source with words for arguments that have no name in the program."""
    return _HIDDEN.sub(_KEPT, _ITERATED.sub(f"the next item of {_KEPT}", name))


def python_name(name: str) -> str:
    """Return the name of a source as the program writes it. Arguments without a name are ``value_0``, ``value_inner3``."""
    name = _OF_MODULE.sub(lambda m: f"{m[1]}.{m[3]}" if m[3] else f"vars({m[1]})", name)
    name = _OF_NAMESPACE.sub(lambda m: m[1] or m[2] or "", name)
    return _HIDDEN.sub(lambda m: f"value_{m[0][1:]}", name)


def _literal(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    if isinstance(value, type):
        return class_name(value).removeprefix("__main__.")
    return repr(value)


def _equals(name: str, check: records.Equals) -> str:
    value = check.value
    if isinstance(value, bool) or value is None:
        return f"{name} is {value}"
    if isinstance(value, str | bytes):
        return f"{name} == {value!r}"
    if isinstance(value, float | complex) and (value == 0 or "nan" in repr(value)):  # zeros have signs
        return f"repr({name}) == {repr(value)!r}"
    return f"type({name}) is {type(value).__name__} and {name} == {_literal(value)}"


def _type_is(name: str, check: records.TypeIs) -> str:
    cls = check.cls
    if cls is type(None):
        return f"{name} is None"
    if cls.__module__ == "builtins" and getattr(builtins, cls.__name__, None) is not cls:
        return f"type({name}).__name__ == {cls.__name__!r}"
    return f"type({name}) is {_literal(cls)}"


def _is(name: str, check: records.IdentityIs) -> str:
    obj = check.obj
    if obj is None or obj is True or obj is False or obj is ...:
        return f"{name} is {obj}"
    if inspect.isclass(obj) or inspect.isroutine(obj):
        known = f"{getattr(obj, '__module__', None) or 'builtins'}.{obj.__qualname__}"
        known = known.removeprefix("builtins.").removeprefix("__main__.")
        if known.rpartition(".")[2] not in re.findall(r"\w+", name)[-1:]:
            return f"{name} is {known}"
    return f"unchanged({name})"


def _keys_are(name: str, check: records.KeysAre) -> str:
    if not check.ordered:
        return f"{name}.keys() == {{{', '.join(map(short, check.keys))}}}"
    return f"list({name}) == [{', '.join(map(short, check.keys))}]"


def _members_are(name: str, check: records.MembersAre) -> str:
    empty = [f"{name}[{key!r}]" for key in check.empty]
    parts = [f"not {{{', '.join(map(repr, check.absent))}}} & {name}.keys()"] if check.absent else []
    return " and ".join([*parts, *([" == ".join([*empty, "{}"])] if empty else [])])


def _class_unchanged(name: str, check: records.ClassUnchanged) -> str:
    names = [f"{name}.{attribute}" for attribute in sorted(check.names)[:_MOST_NAMES]]
    names += ["..."] if len(check.names) > _MOST_NAMES else []
    return f"unchanged({', '.join([*names, *([f'{name}.__mro__'] if check.mro else [])])})"


def _each(method: str, numbers: Iterable[int | None]) -> list[str]:
    return [f"{method}({dim}) == {number}" for dim, number in enumerate(numbers) if number is not None]


def _tensor_is(name: str, check: records.TensorIs) -> str:
    """The dispatch keys are not in the text. Nearly always the other facts determine them."""
    parts = [f"type({name}) is {_literal(check.cls)}", f"{name}.dtype == {check.dtype}"]
    parts += [f"str({name}.device) == '{check.device}'", f"{name}.requires_grad is {check.requires_grad}"]
    if check.layout is not torch.strided:
        parts.append(f"{name}.layout == {check.layout}")
    shape, strides = check.sizes, check.strides or ()
    parts += (
        [f"{name}.dim() == {len(shape)}", *_each(f"{name}.size", shape)]
        if None in shape
        else [f"{name}.shape == {tuple(shape)}"]
    )
    parts += _each(f"{name}.stride", strides) if None in strides else [f"{name}.stride() == {tuple(strides)}"]
    if check.storage_offset is not None:
        parts.append(f"{name}.storage_offset() == {check.storage_offset}")
    return " and ".join(parts if check.is_leaf is None else [*parts, f"{name}.is_leaf is {check.is_leaf}"])


def _marks_within(name: str, check: records.MarksWithin) -> str:
    rows = zip(check.names, check.dims, strict=True)
    marked = ", ".join(f"{mark!r}: {set(dims)}" for mark, dims in rows if dims)
    return f"marks({name}) <= {{{marked}}}" if marked else f"not marks({name})"


def _all(name: str, check: records.AllDistinct | records.NoOverlap | records.SharesStorage) -> list[str]:
    return [name, *(python_name(source.name) for source in check.others)]


def _distinct(name: str, check: records.AllDistinct) -> str:
    names = _all(name, check)
    if len(names) == 2:
        return " is not ".join(names)
    return f"len({{{', '.join(f'id({one})' for one in names)}}}) == {len(names)}"


def _shape_holds(_name: str, check: records.ShapeHolds) -> str:
    named = {symbol: sympy.Symbol(python_name(source.name)) for symbol, source in check.symbols}
    with sympy.evaluate(False):
        return str(PythonPrinter().doprint(check.expr.xreplace(named)))


_CONDITIONS: dict[type, Callable[[str, Any], str]] = {
    records.TypeIs: _type_is,
    records.WordIs: lambda n, _c: f"type({n}) is int and abs({n}) < 2**62",
    records.IdentityIs: _is,
    records.Equals: _equals,
    records.LengthIs: lambda n, c: f"len({n}) == {c.length}",
    records.KeysAre: _keys_are,
    records.HasKey: lambda n, c: f"{c.key!r} {'in' if c.present else 'not in'} {n}",
    records.MembersAre: _members_are,
    records.SlotUnset: lambda n, c: f"not hasattr({n}, {c.attr!r})",
    records.CellEmpty: lambda n, _c: f"unchanged({n})",
    records.RangeIs: lambda n, c: f"({n}.start, {n}.stop, {n}.step) == ({c.start}, {c.stop}, {c.step})",
    records.ClassUnchanged: _class_unchanged,
    records.SubclassIs: lambda n, c: f"{'' if c.answer else 'not '}issubclass({n}, {_literal(c.cls)})",
    records.TensorIs: _tensor_is,
    records.MarksWithin: _marks_within,
    records.SameObject: lambda n, c: f"{n} is {python_name(c.other.name)}",
    records.AllDistinct: _distinct,
    records.NoOverlap: lambda n, c: f"not share_memory({', '.join(_all(n, c))})",
    records.SharesStorage: lambda n, c: f"share_memory({', '.join(_all(n, c))})",
    records.ShapeHolds: _shape_holds,
    records.TorchStateIs: lambda n, _c: f"unchanged({n}.state)",
}


def condition(guard: records.Guard) -> str:
    """Return a guard as Python, for example ``type(x) is int``."""
    return _CONDITIONS[type(guard.check)](python_name(guard.source.name), guard.check)


def state_difference(check: records.TorchStateIs) -> str:
    assert isinstance(check.state, TorchState)
    return difference(check.state, snapshot()) or "the state has changed back since the check"
