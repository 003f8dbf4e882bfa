"""Tables by ids and hashes made before a graph break know the objects that stand after it."""

import copy

import pytest
import torch
from running import check

from fxstack_capture import graph_break, native, optimize

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


class Known:
    """Knows tensors by their ids, as code that keeps state for tensors does."""

    def __init__(self, *tensors):
        self.ids = {id(t) for t in tensors}
        self.table = {id(t): i for i, t in enumerate(tensors)}
        self.pairs = {(id(t), 0): 1 for t in tensors}
        self.names = {f"tensor {id(t)}" for t in tensors}
        self.listed = [5, *map(id, tensors)]
        self.last = id(tensors[-1]) if tensors else 0


QUESTIONS = {
    "set": lambda known, x: id(x) in known.ids,
    "list": lambda known, x: id(x) in known.listed,
    "number": lambda known, x: id(x) == known.last,
    "get": lambda known, x: known.table.get(id(x), 7),
    "keys": lambda known, x: id(x) in known.table.keys(),  # noqa: SIM118
    "pair": lambda known, x: (id(x), 0) in known.pairs,
    "text": lambda known, x: f"tensor {id(x)}" in known.names,
    "hash": lambda known, x: hash(x) in {hash(n) for n in known.listed},
    "difference": lambda known, x: known.last - id(x) == 0,
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
@pytest.mark.filterwarnings("error:internal error")
def test_passed_tensors_are_found_by_their_ids(question):
    def program(known, x):
        return x + 1 if question(known, x) else x

    compiled = optimize()(program)
    for kept in (True, False, True, False):
        x = torch.ones(2)
        known = Known(x, X) if kept else Known(X)
        known.last = id(x) if kept else id(X)
        assert torch.equal(compiled(known, x), program(known, x))


def test_ids_that_only_tell_objects_apart_are_one_graph():
    def program(x, y):
        memo = {}
        for t in (x, y, x):
            memo.setdefault(id(t), t + 1)
        return len(memo), *memo.values()

    check(program, X, X + 1, graphs=1)
