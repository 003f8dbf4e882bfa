"""What a program has let go of is gone when the operation runs that ends a graph, as in plain Python."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from beside import breaks_beside_plain

from fxstack_capture import disable, native

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")


class Node:
    pass


def cycle(x):
    y, node = x + 1, Node()
    alive = weakref.ref(node)
    held = {node: 1}
    node.values = iter(held.values())
    del node, held
    gc.collect()
    return y * 2, alive() is None


def deleted_behind_a_break(x):
    y, node = x + 1, Node()
    alive = weakref.ref(node)
    seen = [seen_by_gc(alive)]
    del node
    seen.append(seen_by_gc(alive))
    return y * 2, seen


def rebound(x):
    y, node = x + 1, Node()
    nodes, alive = [node], weakref.ref(node)
    node = seen_by_gc(alive)
    nodes.clear()
    return y * 2, node, seen_by_gc(alive)


def bound_to_the_end(x):
    y, node = x + 1, Node()
    alive = weakref.ref(node)
    return y * 2, seen_by_gc(alive), node.__class__


def seen_through_references_alone(x):
    y, node, other = x + 1, Node(), Node()
    alive, proxy = weakref.ref(node), weakref.proxy(other)
    before = seen_by_gc(alive), type(proxy.__class__)
    proxy.count = len(before)
    after = seen_by_gc(alive), other.count
    node = other = None
    return y * 2, before, after, seen_by_gc(alive)


def taken_from_a_list(x, nodes):
    node = nodes.pop()
    alive = weakref.ref(node)
    before = seen_by_gc(alive)
    node = None
    return x * 2, before, seen_by_gc(alive)


def an_argument(x, node):
    alive = weakref.ref(node)
    before = seen_by_gc(alive)
    node = None
    return x * 2, before, seen_by_gc(alive)


@disable
def seen_by_gc(reference):
    gc.collect()
    return reference() is not None


@pytest.mark.parametrize(
    "program", [cycle, deleted_behind_a_break, rebound, bound_to_the_end, seen_through_references_alone]
)
def test_lifetimes_are_those_of_plain_python(program):
    assert breaks_beside_plain(program, lambda: (torch.ones(2),))


def test_arguments_live_as_long_as_their_variables():
    assert breaks_beside_plain(lambda x: an_argument(x, Node()), lambda: (torch.ones(2),))


def test_what_was_only_held_by_a_container_lives_in_its_variable():
    assert breaks_beside_plain(taken_from_a_list, lambda: (torch.ones(2), [Node()]))
