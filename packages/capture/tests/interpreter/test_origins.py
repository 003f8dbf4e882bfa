"""Failures of the compiler while it traces: no handler of the program sees them, and no rule takes them for an answer."""

import contextlib
from pathlib import Path

import pytest
import torch

import fxstack_capture
from fxstack_capture.calls.dispatch import CallDispatcher
from fxstack_capture.objects.object_model import ObjectModel
from fxstack_capture.torch_side.recording.tracer import TorchTracer

X = torch.arange(4.0)

# As a lapse in the compiler would raise them: by an instruction, from code of the package.
LAPSES = """
def key(): {}[0]
def attribute(): None.missing
def index(): [][0]
def division(): 1 / 0
def value(): a, b = (1,)
def unbound():
    print(name)
    name = 1
def assertion():
    assert not 1, "invariant"
def stop(): next(iter(()))
"""


def lapses():
    namespace = {}
    file = Path(fxstack_capture.__file__).parent / "sources.py"
    exec(compile(LAPSES, str(file), "exec"), namespace)  # noqa: S102
    return {name: fn for name, fn in namespace.items() if not name.startswith("__")}


LAPSE = lapses()


class Box:
    def __init__(self, value):
        self.value = value

    def __getattr__(self, name):
        return 7

    @property
    def checked(self):
        return self.value + 1

    def __iter__(self):
        return iter([self.value, 2])


def handlers(x, box):
    out = []
    try:
        y = x + box.value
        out.append(torch.relu(y))
    except Exception as error:  # noqa: BLE001
        out.append(type(error).__name__)
    try:
        raise KeyError(1)
    except KeyError as error:
        out.append(error.args)
    finally:
        out.append(x.sum())
    return out


def questions(x, box):
    found = getattr(box, "checked", None), hasattr(box, "value"), getattr(x, "nothing", "default")
    return x * box.other, found, {**vars(box)}


def loops(x, box):
    total = x
    for item in box:
        total = total + item
    for item in (box.value * i for i in range(3)):
        total = total + item
    first, *rest = box
    with contextlib.suppress(Exception):
        total = total * first
    return total, rest, next(iter(()), "end")


def patterns(x, box):
    match box:
        case Box(value=3):
            return x - 1
        case Box(checked=4):
            return x + 1
    return x


SITES = (
    (ObjectModel, "load_attr"),
    (ObjectModel, "enter"),
    (ObjectModel, "load_global"),
    (CallDispatcher, "call"),
    (CallDispatcher, "rule_of"),
    (CallDispatcher, "next"),
    (CallDispatcher, "iterate"),
    (TorchTracer, "call"),
    (TorchTracer, "load_attr"),
)


class Faulty:
    """A method that fails once, at its call number ``at``."""

    def __init__(self, monkeypatch, site, fail, at):
        cls, name = site
        original, self.calls = getattr(cls, name), 0

        def method(*args, **kwargs):
            self.calls += 1
            if self.calls == at:
                fail()
            return original(*args, **kwargs)

        monkeypatch.setattr(cls, name, method)


@pytest.mark.parametrize("program", [handlers, questions, loops, patterns])
@pytest.mark.parametrize("lapse", LAPSE)
def test_failures_of_the_compiler_are_not_the_program_s(program, lapse, monkeypatch):
    expected = program(X, Box(3))
    hits = 0
    for site in SITES:
        for at in (1, 3):
            fxstack_capture.reset()
            with monkeypatch.context() as patch:
                faulty = Faulty(patch, site, LAPSE[lapse], at)
                found = fxstack_capture.optimize()(program)(X, Box(3))
                hits += faulty.calls >= at
            assert str(found) == str(expected), (site, at)
    assert hits > 4


@pytest.mark.filterwarnings("error")
def test_what_torch_refuses_is_the_program_s():
    def program(x):
        try:
            return torch.nn.Parameter(x.long() + 1)
        except RuntimeError as error:
            return x + len(str(error))

    assert torch.equal(fxstack_capture.optimize()(program)(X), program(X))
