"""Weak references and proxies that come from outside: what they refer to is read, and may die."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from beside import breaks_beside_plain

from fxstack_capture import graph_break, native, optimize

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")


class Trainer:
    def __init__(self, scale=2.0):
        self.scale = scale
        self.steps = 0

    def scaled(self, x):
        return x * self.scale


class Model(torch.nn.Module):
    def __init__(self, trainer):
        super().__init__()
        self.trainer = weakref.proxy(trainer)

    def forward(self, x):
        self.trainer.steps += 1
        del self.trainer.scale
        self.trainer.scale = 3.0
        is_one = isinstance(self.trainer, Trainer)
        return self.trainer.scaled(x), is_one, type(self.trainer), self.trainer.steps


TRAINER = Trainer()
MODEL = Model(TRAINER)


def through_a_proxy(x):
    return (*MODEL(x), TRAINER.__dict__.copy())


def test_a_proxy_shows_and_changes_its_object():
    TRAINER.steps = 0
    compiled = optimize(fullgraph=True)(through_a_proxy)
    for step in range(1, 4):
        y, is_one, cls, steps, state = compiled(torch.ones(2))
        assert (is_one, cls, steps) == (True, weakref.ProxyType, step)
        assert state == {"steps": step, "scale": 3.0}
        assert torch.equal(y, torch.full((2,), 3.0))


def test_a_graph_break_keeps_the_proxy():
    def broken(x):
        y = MODEL(x)[0]
        graph_break()
        return y + MODEL.trainer.scale

    assert breaks_beside_plain(broken, lambda: (torch.ones(2),)) == ["user-break"] * 2


@pytest.mark.parametrize("make", [Trainer, lambda: torch.ones(2), lambda: torch.nn.Linear(1, 1)])
def test_what_compiled_code_read_through_a_reference_may_die(make):
    thing = make()
    reference = weakref.ref(thing)
    compiled = optimize(fullgraph=True)(lambda x: x + (reference() is None))
    assert compiled(torch.zeros(1)) == 0
    del thing
    gc.collect()
    assert reference() is None
    assert compiled(torch.zeros(1)) == 1


def test_a_proxy_of_what_is_gone_raises():
    thing = Trainer()
    proxy = weakref.proxy(thing)
    compiled = optimize()(lambda x: x * proxy.scale)
    compiled(torch.ones(1))
    del thing
    with pytest.raises(ReferenceError, match="no longer exists"):
        compiled(torch.ones(1))


class Names(set):
    """Can be referred to weakly."""


@pytest.mark.parametrize("meanwhile", [graph_break, gc.collect])
def test_a_proxy_crosses_a_break_at_which_its_object_is_gone(meanwhile):
    def dropped(x):
        names = Names("abc")
        proxy = weakref.proxy(names)
        y = x + len(proxy)
        names = None
        meanwhile()
        try:
            return y, str(proxy)
        except ReferenceError as error:
            return y, str(error)

    assert breaks_beside_plain(dropped, lambda: (torch.ones(2),))


class Pool:
    """Counts what it has handed out."""

    def __init__(self):
        self.live = 0

    def take(self):
        made = Trainer()
        self.live += 1
        weakref.finalize(made, self.drop)
        return made

    def drop(self):
        self.live -= 1


def counted(x, pool):
    made = pool.take()
    y = x * made.scale
    graph_break()
    before = pool.live
    del made
    return y + 1, before, pool.live


def finalized(x, _):
    trainer = Trainer()
    finalizer = weakref.finalize(trainer, trainer.scaled, x)
    y = x + 1
    return y, finalizer.alive, finalizer(), finalizer.alive, finalizer()


def detached(x, _):
    trainer = Trainer()
    finalizer = weakref.finalize(trainer, int, 1)
    obj, _, args, _ = finalizer.detach()
    return x * 2, obj is trainer, args, finalizer.peek()


KEPT = Trainer()
FINALIZER = weakref.finalize(KEPT, int)
FINALIZER.atexit = False


def looked_at(x, _):
    return x * 2, FINALIZER.alive, FINALIZER.atexit, FINALIZER.peek()[1]


@pytest.mark.parametrize("fn", [counted, finalized, detached, looked_at])
def test_finalizers(fn):
    ids = breaks_beside_plain(fn, lambda: (torch.ones(3), Pool()))
    assert ("side-effect-call" in ids) == (fn is looked_at)  # the others run in plain Python
