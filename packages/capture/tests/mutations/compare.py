"""Calls a program plainly in one copy of its world and compiled in the other, with one change between calls."""

import contextlib
import random
import warnings

import library_changes
import torch
from changes import MODES, change
from same import difference
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.hooks import RemovableHandle
from universe import LIBRARY_SNIPPETS, Program

import fxstack_capture


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def threads(count):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def global_hook():
    handle = torch.nn.modules.module.register_module_forward_hook(lambda m, a, o: o + 0.5)
    try:
        yield
    finally:
        handle.remove()


class _Function(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * 2 if func is torch.relu else out


class _Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out + 1 if func is torch.ops.aten.relu.default else out


_SCOPE = {
    **library_changes.SCOPE,
    "replaced": library_changes.replaced,
    "changed": library_changes.changed,
    "default_dtype": default_dtype,
    "deterministic": deterministic,
    "threads": threads,
    "global_hook": global_hook,
    "function_mode": _Function,
    "dispatch_mode": _Dispatch,
}


def outcome(fn, scope, mode):
    """What a call gives: a value or an exception, as data that can be compared."""
    torch.manual_seed(0)
    context = eval(mode, _SCOPE) if mode else contextlib.nullcontext()
    try:
        with context:
            return "returned", _dense(fn(*scope["args"]))
    except Exception as error:
        return "raised", type(error).__name__, str(error)


_STATE = [
    "box",
    "other",
    "slotted",
    "LIST",
    "DICT",
    "NESTED",
    "SET",
    "DEQUE",
    "COUNTER",
    "ORDERED",
    "NUMBER",
    "args",
]


def state(scope):
    """What the programs write to."""
    found = [scope.get(name) for name in _STATE]
    rates = [getattr(scope.get(name), "rate", None) for name in ("Base", "Box", "Other")]
    return _dense([*found, rates, scope.get("TENSOR")])


def _dense(value):
    """Sparse tensors, also in lists, as dense ones: they have no strides to compare."""
    if type(value) in (list, tuple):
        return [_dense(item) for item in value]
    sparse = issubclass(type(value), torch.Tensor) and value.layout is not torch.strided
    return value.to_dense() if sparse else value


class Case:
    """One program in two copies of its world. ``log`` is the text of what happened, to repeat it by hand.

    ``apart``: both raised the same, but a graph that raises at run time loses what the program wrote
    before it (docs/limitations.md), so that the two worlds can no longer be compared. ``libraries``: how many of the
    changes replace what a library defines, for the length of a call.
    """

    def __init__(self, seed, libraries=0.0, **options):
        self.rng = random.Random(f"changes {seed}")
        self.libraries = libraries
        self.program = Program(seed, more=LIBRARY_SNIPPETS if libraries else [])
        self.plain, self.compiled = (self.program.objects("<string>") for _ in range(2))
        self.log = []
        self.raised, self.apart = 0, False
        chosen = fxstack_capture.CaptureOptions(recompile_limit=10_000, **options)
        self.fn = fxstack_capture.optimize(options=chosen)(self.compiled["main"])

    def call(self, mode=None):
        """What differs between the two; None when nothing does."""
        expected = outcome(self.plain["main"], self.plain, mode)
        found = outcome(self.fn, self.compiled, mode)
        self.raised = self.raised + 1 if expected[0] == "raised" else 0
        if expected[0] == "raised" or found[0] == "raised":
            self.apart = self._differs(None, None) is not None
            return None if expected == found else f"{expected} is not {found}"
        return self._differs(expected, found)

    def _differs(self, expected, found):
        try:
            return difference((expected, state(self.plain)), (found, state(self.compiled)))
        except Exception:  # a sparse tensor somewhere inside, or an object that cannot be looked at
            return None

    def change(self):
        """Change the same thing in both worlds; False when it cannot be changed."""
        statement = change(self.plain, self.program.places, self.rng)
        done = [self._apply(statement, scope) for scope in (self.plain, self.compiled)]
        self.log.append(statement if done[0] else f"# {statement}")
        return done[0]

    @staticmethod
    def _apply(statement, scope):
        torch.manual_seed(0)
        RemovableHandle.next_id = 0  # hooks have the same keys in both worlds
        try:
            exec(statement, scope)
        except Exception:
            return False
        return True

    def step(self):
        """One change (or mode), one call; what differs."""
        mode = None
        kind = self.rng.random()
        if kind < self.libraries:
            mode = library_changes.random_mode(self.program.main, self.rng)
            self.log.append(f"with {mode}:")
        elif kind < self.libraries + 0.12:
            mode = self.rng.choice(MODES)
            self.log.append(f"with {mode}:")
        elif not self.change():
            return None
        self.log.append("call")
        return self.call(mode)


def run(seed, changes, **options):
    """(changes made, None or what differed and how to get there)."""
    case = Case(seed, **options)
    made = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = case.call()
        # A broken world stays broken.
        while found is None and made < changes and case.raised < 4 and not case.apart:
            made += 1
            found = case.step()
    if found is None:
        return made, None
    return made, "\n".join([f"seed {seed}: {found}", case.program.main, *case.log])
