"""Compare a traced call with plain Python: value or exception, and what happened to the arguments."""

import copy
import types

import torch
from tracing import trace_call

from fxstack_capture.trace.records import Raised


def reveal(objects, obj, seen=None):
    """A trace-world object as plain data: stand-ins completed, instances as (class, attributes)."""
    seen = {} if seen is None else seen
    if isinstance(obj, torch.Tensor):
        return ("tensor", tuple(obj.shape), obj.dtype)
    kind = type(obj)
    if kind.__name__ in ("SymInt", "SymFloat", "SymBool"):
        return "symbolic"
    if obj is None or kind in (bool, int, float, complex, str, bytes, range, slice) or isinstance(obj, type):
        return repr(obj)
    if kind in (types.FunctionType, types.BuiltinFunctionType, types.ModuleType):
        return obj.__name__
    if id(obj) in seen:
        return ("again", seen[id(obj)])
    seen[id(obj)] = len(seen)
    if objects is not None:
        objects.expand(obj)
    if isinstance(obj, dict):
        content = [(reveal(objects, k, seen), reveal(objects, v, seen)) for k, v in dict.items(obj)]
    elif isinstance(obj, (list, tuple)):
        base = list if isinstance(obj, list) else tuple
        content = [reveal(objects, x, seen) for x in base.__iter__(obj)]
    elif isinstance(obj, (set, frozenset)):
        content = sorted((reveal(objects, x, seen) for x in obj), key=repr)
    elif isinstance(obj, BaseException):
        content = [reveal(objects, a, seen) for a in obj.args]
    elif kind is types.MethodType:
        content = [obj.__func__.__name__, reveal(objects, obj.__self__, seen)]
    elif hasattr(obj, "__next__") or kind.__module__ in ("collections", "builtins"):
        try:
            content = [reveal(objects, x, seen) for x in copy.copy(obj)]
        except TypeError:
            content = repr(obj)
    else:
        content = []
    own = attributes(objects, obj)
    return (kind.__qualname__, content, {k: reveal(objects, v, seen) for k, v in own.items()})


def attributes(objects, obj):
    own = {}
    if isinstance(obj, BaseException):
        return {k: v for k, v in vars(obj).items() if k != "__notes__"}
    for base in type(obj).__mro__:
        for name, member in vars(base).items():
            if type(member) is types.MemberDescriptorType and base.__flags__ & (1 << 9):
                try:
                    own[name] = member.__get__(obj)
                except AttributeError:
                    continue
    try:
        own.update(object.__getattribute__(obj, "__dict__"))
    except AttributeError:
        pass
    return own


def same(got, expected, what):
    assert got == expected, f"{what}:\n  got      {got}\n  expected {expected}"


def outcome_of(fn, args):
    try:
        return ("value", fn(*args))
    except Exception as error:
        return ("raises", type(error), str(error))


def agrees(fn, *args, breaks=False):
    """Trace ``fn(*args)`` and compare with running it on copies."""
    mine = copy.deepcopy(args)
    expected = outcome_of(fn, mine)
    if expected[0] == "value":
        expected = ("value", reveal(None, expected[1]))
    snapshot = reveal(None, list(args))
    run = trace_call(fn, *args)
    objects = run.trace.objects
    if isinstance(run.outcome, Raised):
        got = ("raises", type(run.outcome.exception), str(run.outcome.exception))
    else:
        got = ("value", reveal(objects, run.outcome.value))
    same(got, expected, "outcomes differ")
    same(reveal(None, list(args)), snapshot, "an original was changed")
    after = [entered(objects, arg) for arg in args]
    same(reveal(objects, after), reveal(None, list(mine)), "side effects differ")
    return run


def entered(objects, arg):
    """What an argument has become; one that was never looked at is unchanged."""
    entry = objects.registry.by_original.get(id(arg))
    return arg if entry is None else entry.proxy
