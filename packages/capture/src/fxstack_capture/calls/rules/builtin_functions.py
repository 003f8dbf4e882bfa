"""Rules of builtin functions that meet tensors, symbolic numbers or stand-ins whose state is lazy."""

from __future__ import annotations

import builtins
import functools
import operator
import types
from typing import TYPE_CHECKING, Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.native_run import run
from fxstack_capture.calls.table import RuleTable

if TYPE_CHECKING:
    from fxstack_capture.trace import Trace

RULES = RuleTable()

_SYMBOLIC_CLASS: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


def class_of(trace: Trace, value: Any) -> type:
    """``type(value)`` as the program sees it."""
    if isinstance(value, torch.Tensor):
        return trace.torch.python_type(value)
    kind = type(value)
    return _SYMBOLIC_CLASS.get(kind, kind)


# --- types ---------------------------------------------------------------------------------------


@RULES.rule(type)
def _type(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) == 1 and not kwargs:
        return class_of(trace, args[0])
    if len(args) == 3:
        return make_class(trace, type, args, kwargs)
    return run(trace, type, args, kwargs)


def make_class(trace: Trace, meta: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> type:
    """A class made by the program: its namespace is trace-world already, hooks of it are interpreted."""
    world: Any = trace.world
    world.expand(args[2])
    made = trace.calls.native(meta, args, kwargs)
    trace.world.note_new(made)
    return made  # type: ignore[no-any-return]


@RULES.rule(isinstance)
def _isinstance(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) != 2 or kwargs:
        return isinstance(*args, **kwargs)
    value, classes = args
    if isinstance(value, torch.Tensor):
        return _tensor_isinstance(trace, value, classes)
    kind = type(value)
    if kind in _SYMBOLIC_CLASS:
        return isinstance(value, classes) or issubclass(_SYMBOLIC_CLASS[kind], classes)
    if type(classes) is type or (type(classes) is tuple and all(type(c) is type for c in classes)):
        return isinstance(value, classes)
    return run(trace, isinstance, args, {})


def _tensor_isinstance(trace: Trace, value: torch.Tensor, classes: Any) -> bool:
    shown = trace.torch.python_type(value)
    if type(classes) is tuple:
        return any(_tensor_isinstance(trace, value, c) for c in classes)
    if isinstance(classes, types.UnionType):
        return any(_tensor_isinstance(trace, value, c) for c in classes.__args__)
    if classes is torch.nn.Parameter or classes is torch.nn.parameter.Parameter:
        return issubclass(shown, torch.nn.Parameter)
    if classes is torch.nn.Buffer:
        return bool(getattr(value, "_is_buffer", False))
    if isinstance(classes, torch._C._TensorMeta if hasattr(torch._C, "_TensorMeta") else type(torch.Tensor)):
        if classes.__module__ == "torch" and classes.__name__.endswith("Tensor") and classes is not torch.Tensor:
            return isinstance(value, classes)  # legacy types such as torch.FloatTensor look at the dtype
        return issubclass(shown, classes)
    if not isinstance(classes, type):
        return isinstance(value, classes)
    return issubclass(shown, classes)


@RULES.rule(issubclass)
def _issubclass(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return run(trace, issubclass, args, kwargs)


@RULES.rule(callable)
def _callable(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return callable(*args, **kwargs)


@RULES.rule(id)
def _id(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Ids of stand-ins are consistent while tracing; they must not leave it, which nothing checks yet."""
    return id(*args, **kwargs)


@RULES.rule(hash)
def _hash(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) == 1 and isinstance(args[0], torch.Tensor):
        return id(args[0])
    return run(trace, hash, args, kwargs)


@RULES.rule(torch.Tensor.__hash__)
def _tensor_hash(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return id(args[0])


# --- attributes ----------------------------------------------------------------------------------


def _name_argument(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what}attribute name must be string, not '{type(value).__name__}'")
    return value


@RULES.rule(getattr)
def _getattr(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kwargs or not 2 <= len(args) <= 3:
        return getattr(*args, **kwargs)
    name = _name_argument(args[1], "")
    if len(args) == 2:
        return trace.world.load_attr(args[0], name)
    try:
        return trace.world.load_attr(args[0], name)
    except AttributeError:
        return args[2]


@RULES.rule(hasattr)
def _hasattr(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kwargs or len(args) != 2:
        return hasattr(*args, **kwargs)
    try:
        trace.world.load_attr(args[0], _name_argument(args[1], ""))
    except AttributeError:
        return False
    return True


@RULES.rule(setattr)
def _setattr(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kwargs or len(args) != 3:
        return setattr(*args, **kwargs)
    trace.world.store_attr(args[0], _name_argument(args[1], ""), args[2])
    return None


@RULES.rule(delattr)
def _delattr(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kwargs or len(args) != 2:
        return delattr(*args, **kwargs)
    trace.world.delete_attr(args[0], _name_argument(args[1], ""))
    return None


# --- operators spelled as functions --------------------------------------------------------------


def _binary_rule(op: Any) -> None:
    def rule(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs or len(args) != 2:
            return op(*args, **kwargs)
        return trace.calls.binary(op, *args)

    RULES.add(op, rule)


for _op in (
    *("add sub mul truediv floordiv mod matmul pow lshift rshift and_ or_ xor".split()),
    *("iadd isub imul itruediv ifloordiv imod imatmul ipow ilshift irshift iand ior ixor".split()),
    *("lt le eq ne gt ge getitem contains concat iconcat".split()),
):
    _binary_rule(getattr(operator, _op))


def _unary_rule(op: Any) -> None:
    def rule(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs or len(args) != 1:
            return op(*args, **kwargs)
        return trace.calls.unary(op, args[0])

    RULES.add(op, rule)


for _op in "neg pos invert not_ truth abs".split():
    _unary_rule(getattr(operator, _op))
_unary_rule(abs)


@RULES.rule(bool)
def _bool(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kwargs or len(args) != 1:
        return bool(*args, **kwargs)
    return trace.calls.truth(args[0])


@RULES.rule(len)
def _len(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kwargs or len(args) != 1:
        return len(*args, **kwargs)
    value = args[0]
    state = trace.world.lazy.get(id(value))  # type: ignore[attr-defined]
    if state is not None:
        return state.length()
    if type(value) in _CONTAINERS:
        return len(value)
    if isinstance(value, torch.Tensor):
        if value.dim() == 0:
            raise TypeError("len() of a 0-d tensor")
        return trace.torch.call(torch.Tensor.size, (value, 0), {})
    return run(trace, len, args, {})


_CONTAINERS = frozenset({list, tuple, dict, set, frozenset, str, bytes, range})


@RULES.rule(iter)
def _iter(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) == 1 and not kwargs:
        return trace.calls.iterate(args[0])
    return run(trace, iter, args, kwargs)


@RULES.rule(next)
def _next(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kwargs or not 1 <= len(args) <= 2:
        return next(*args, **kwargs)
    try:
        return trace.calls.next(args[0])
    except StopIteration:
        if len(args) == 2:
            return args[1]
        raise


@RULES.rule(operator.setitem)
def _setitem(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kwargs or len(args) != 3:
        return operator.setitem(*args, **kwargs)
    target, key, value = args
    if type(target) is list and type(key) is int:
        target[key] = value
        return None
    if type(target) is dict:
        return trace.calls.call(dict.__setitem__, args, {})
    if isinstance(target, torch.Tensor):
        return trace.torch.call(operator.setitem, args, {})
    return run(trace, operator.setitem, args, {})


@RULES.rule(operator.delitem)
def _delitem(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if args and type(args[0]) is dict:
        return trace.calls.call(dict.__delitem__, args, kwargs)
    return run(trace, operator.delitem, args, kwargs)


# --- conversions of tensors and symbolic numbers -------------------------------------------------


def _conversion(cls: type, method: Any) -> None:
    def rule(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) == 1 and not kwargs:
            value = args[0]
            if isinstance(value, torch.Tensor):
                return trace.torch.call(method, args, {})
            if type(value) in _SYMBOLIC_CLASS:
                return _SYMBOLIC_CONVERSIONS[cls](value)
        return run(trace, cls, args, kwargs)

    RULES.add(cls, rule)


_SYMBOLIC_CONVERSIONS: dict[type, Any] = {int: torch.sym_int, float: torch.sym_float, complex: complex}
_conversion(int, torch.Tensor.__int__)
_conversion(float, torch.Tensor.__float__)
_conversion(complex, torch.Tensor.__complex__)


# --- namespaces ----------------------------------------------------------------------------------


@RULES.rule(globals)
def _globals(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    frame = trace.interp.current_frame()  # type: ignore[attr-defined]
    return trace.world.namespace(frame.globals).mirror  # type: ignore[attr-defined]


@RULES.rule(locals)
def _locals(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    raise graph_break("unsupported-call", "locals")


@RULES.rule(vars)
def _vars(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) != 1 or kwargs:
        raise graph_break("unsupported-call", "vars")
    try:
        return trace.world.load_attr(args[0], "__dict__")
    except AttributeError:
        raise TypeError("vars() argument must have __dict__ attribute") from None


@RULES.rule(dir)
def _dir(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    raise graph_break("unsupported-call", "dir")


@RULES.rule(super)
def _super(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if args or kwargs:
        return super(*args, **kwargs)
    frame = trace.interp.current_frame()  # type: ignore[attr-defined]
    return super(*super_arguments(trace, frame))


def super_arguments(trace: Trace, frame: Any) -> tuple[Any, Any]:
    """What ``super()`` finds in the frame that calls it: the ``__class__`` cell and the first argument."""
    code: types.CodeType = frame.code
    if code.co_argcount == 0:
        raise RuntimeError("super(): no arguments")
    if "__class__" not in code.co_freevars:
        raise RuntimeError("super(): __class__ cell not found")
    cls = frame.value_of(frame.program.names.index("__class__"))
    first = frame.value_of(0)
    return cls, first


@RULES.rule(functools.reduce)
def _reduce(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return run(trace, functools.reduce, args, kwargs)


@RULES.rule(builtins.__build_class__)
def _build_class(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    raise graph_break("unsupported-call", "a class statement")
