"""Trace a call, run the replacement beside plain Python, and compare: no native hook involved."""

import copy
import inspect
from types import FunctionType

import torch

from fxstack_capture.driver.attempt import real_frame
from fxstack_capture.driver.backend import eager
from fxstack_capture.driver.compiler import CodeState, FrameCompiler
from fxstack_capture.emit.resume import Resumptions
from fxstack_capture.options import CaptureOptions


def frame_of(fn, args, kwargs):
    names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
    if any(name.startswith(".") for name in names):
        return real_frame(fn, fn.__code__, dict(zip(names, args, strict=True)), fn.__closure__ or ())
    bound = inspect.signature(fn).bind(*args, **kwargs)
    bound.apply_defaults()
    return real_frame(fn, fn.__code__, dict(bound.arguments), fn.__closure__ or ())


class Replaced:
    """Replacements of a function and of its resume functions, made at every call; ``graphs`` counts operators."""

    def __init__(self):
        self.graphs, self.breaks, self.texts = [], [], []
        self.plain = set()
        self.compiler = FrameCompiler(eager, CaptureOptions(), None, self)
        self.resumptions = Resumptions(lambda code: self.plain.add(id(code)))
        self.compiler.resumptions = self.resumptions

    def on_break(self, record):
        self.breaks.append(record)

    def call(self, fn, *args, **kwargs):
        frame = frame_of(fn, args, kwargs)
        draft, raised = self._draft(frame, fn.__code__)
        if raised:
            return fn(*args, **kwargs)
        if draft.captured is not None:
            self.graphs.append(draft.captured.graph_module)
        emitted = draft.complete(draft.captured and draft.captured.graph_module)
        self.texts.append(emitted.text)
        code = self._hooked(emitted.code)
        run = FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
        run.__kwdefaults__ = fn.__kwdefaults__
        return run(*args, **kwargs)

    def _draft(self, frame, code):
        written = self.compiler._write(frame, code, CodeState(code))
        return written.draft, written.raised

    def _hooked(self, code):
        """What the frame hook does for resume functions: they are called through ``call``."""
        swap = lambda c: self._maker if c is FunctionType else c
        return code.replace(co_consts=tuple(swap(c) for c in code.co_consts))

    def _maker(self, code, namespace, name, defaults, closure):
        made = FunctionType(code, namespace, name, defaults, closure)
        if id(code) in self.plain or self.resumptions.of(code) is None:
            return made
        return lambda *args: self.call(made, *args)


def state(fn, args):
    """What a call may have changed."""
    cells = []
    for cell in fn.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:
            cells.append("empty")
    return args, [c for c in cells if not callable(c)]


def same(a, b, seen=None):
    """Equal in type, content and structure."""
    seen = {} if seen is None else seen
    if id(a) in seen:
        return seen[id(a)] == id(b)
    seen[id(a)] = id(b)
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.allclose(a, b, equal_nan=True)
    if isinstance(a, BaseException):
        return same(a.args, b.args, seen) and same(vars(a), vars(b), seen)
    if isinstance(a, dict):
        left, right = list(a.items()), list(b.items())
        if not all(same(x, y, seen) for x, y in zip(left, right)) or len(left) != len(right):
            return False
    elif isinstance(a, (list, tuple)):
        if len(a) != len(b) or not all(same(x, y, seen) for x, y in zip(a, b)):
            return False
    elif isinstance(a, (int, float, str, bytes, complex, set, frozenset, type(None), type, torch.dtype)):
        if not (a == b or a != a):
            return False
    elif callable(a) and not hasattr(a, "__dict__"):
        return True
    elif not hasattr(a, "__dict__") and hasattr(a, "__reduce_ex__") and not getattr(type(a), "__slots__", ()):
        try:
            return same(a.__reduce_ex__(2), b.__reduce_ex__(2), seen)
        except TypeError:
            return a == b
    for name in getattr(type(a), "__slots__", ()):
        if same(getattr(a, name, None), getattr(b, name, None), seen) is False:
            return False
    return not hasattr(a, "__dict__") or isinstance(a, type) or same(vars(a), vars(b), seen)


def check(fn, *args, graphs=None, breaks=0, make=None):
    """``fn(*args)`` replaced equals plain: result or exception, changes of arguments. Gives the replacements."""
    theirs, ours = copy.deepcopy(args), copy.deepcopy(args)
    plain_fn, our_fn = (make(), make()) if make else (fn, fn)
    torch.manual_seed(0)
    expected = outcome(plain_fn, theirs)
    replaced = Replaced()
    torch.manual_seed(0)
    found = outcome(lambda *a: replaced.call(our_fn, *a), ours)
    assert same(found, expected), (found, expected)
    assert same(state(our_fn, ours), state(plain_fn, theirs)), (state(our_fn, ours), state(plain_fn, theirs))
    if graphs is not None:
        assert len(replaced.graphs) == graphs, replaced.texts
    assert len(replaced.breaks) == breaks, [b.message for b in replaced.breaks]
    return replaced


def outcome(fn, args):
    try:
        return "returned", fn(*args)
    except Exception as error:
        return "raised", error
