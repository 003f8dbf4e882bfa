"""Tables by ids and hashes made before a graph break know the objects that stand after it."""

import copy

import pytest
import torch
from running import check

from fxstack_capture import graph_break, native

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")

X = torch.ones(2)


class Node:
    def __init__(self, *children):
        self.children = children

    def walk(self):
        yield self
        for child in self.children:
            yield from child.walk()


KEPT = Node(Node(), Node(Node()))
NUMBER_OF = {id(node): i for i, node in enumerate(KEPT.walk())}
NAME = f"node {id(KEPT)}"


def numbered(x):
    """A table by ids is of use before a break, after it, and to the caller."""
    tree = Node(Node(), Node(Node()))
    table = {id(node): i for i, node in enumerate(tree.walk())}
    y = x + table[id(tree)]
    graph_break()
    return y, [table[id(node)] for node in tree.walk()], Checked(tree, table)


class Checked:
    """Compares as whether the table knows the objects of the tree."""

    def __init__(self, tree, table):
        self.known = [table.get(id(node)) for node in tree.walk()]


def from_outside(x):
    return x + 1, [NUMBER_OF[id(node)] for node in KEPT.walk()], f"node {id(KEPT)}" == NAME


def hashes(x):
    node = Node()
    number = hash(node)
    graph_break()
    return x + 1, hash(node) == number, node in {node}


def tensors(x):
    y = x * 2
    table = {id(x): "x", id(y): "y"}
    graph_break()
    return table[id(x)], table[id(y)], y


def arguments(x, items):
    table = {id(items): 0, id(items[0]): 1}
    graph_break()
    return x + 1, table[id(items)], table[id(items[0])]


def texts(x):
    node = Node()
    named = {f"value[{id(node)}]": 1, repr(node): 2, hex(id(node)): 3}
    y = x + 1
    graph_break()
    return y, named[f"value[{id(node)}]"], named[repr(node)], named[hex(id(node))]


def copies(x, box):
    other = copy.deepcopy(box)
    return x + 1, other is not box, other["n"] is other["m"]


@pytest.mark.parametrize("program", [numbered, from_outside, hashes, tensors, texts])
def test_identities(program):
    check(program, X)


def test_identities_of_arguments():
    check(arguments, X, [X + 1])


def test_copying_does_not_depend_on_identity():
    """One graph serves boxes that come and go."""
    inner = [1]
    check(copies, X, {"n": inner, "m": inner}, graphs=1)
