"""Trace a call, run the replacement beside plain Python, and compare: no native hook involved."""

import copy
import inspect
from types import FunctionType

import torch
from same import difference

from fxstack_capture.driver.backend import eager
from fxstack_capture.driver.code_history import CodeState
from fxstack_capture.driver.compiler import FrameCompiler
from fxstack_capture.driver.frame_of_call import real_frame
from fxstack_capture.emit.resume import Resumptions
from fxstack_capture.emit.runtime import Continue
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
        result = run(*args, **kwargs)
        while type(result) is Continue:  # as the frame hook does
            result = result[0](*result[1])
        return result

    def _draft(self, frame, code):
        written = self.compiler._write(frame, code, CodeState())
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


def same(a, b):
    return difference(a, b) is None


def check(fn, *args, graphs=None, breaks=0, make=None):
    """``fn(*args)`` replaced equals plain: result or exception, changes of arguments. Gives the replacements."""
    theirs, ours = copy.deepcopy(args), copy.deepcopy(args)
    plain_fn, our_fn = (make(), make()) if make else (fn, fn)
    torch.manual_seed(0)
    expected = outcome(plain_fn, theirs)
    replaced = Replaced()
    torch.manual_seed(0)
    found = outcome(lambda *a: replaced.call(our_fn, *a), ours)
    assert difference(found, expected) is None
    assert difference(state(our_fn, ours), state(plain_fn, theirs)) is None
    if graphs is not None:
        assert len(replaced.graphs) == graphs, replaced.texts
    assert len(replaced.breaks) == breaks, [b.message for b in replaced.breaks]
    return replaced


def outcome(fn, args):
    try:
        return "returned", fn(*args)
    except Exception as error:
        return "raised", error
