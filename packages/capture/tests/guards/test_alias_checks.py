"""Checks of several values: identity and aliasing."""

import pytest
import torch

from fxstack_capture.guards.explain import first_failure
from fxstack_capture.guards.records import AllDistinct, NoOverlap, SameObject, SharesStorage, TypeIs
from fxstack_capture.sources import Item, Local

X, Y = Local("x"), Local("y")


def items(n):
    return tuple(Item(X, i) for i in range(n))


def test_same_object(g):
    a, b = [1], [1]
    tree = g.tree((X, SameObject(Y)))
    assert g.passes(tree, a, a)
    assert not g.passes(tree, a, b)


def test_same_object_deep_inside(g):
    tree = g.tree((Item(X, 0), SameObject(Item(Item(X, 1), 0))))
    a = object()
    assert g.passes(tree, [a, [a]], None)
    assert not g.passes(tree, [a, [object()]], None)
    assert not g.passes(tree, [a], None)


@pytest.mark.parametrize("n", [2, 5, 9, 100, 5000])
def test_all_distinct(g, n):
    first, *others = items(n)
    tree = g.tree((first, AllDistinct(tuple(others))))
    objects = [object() for _ in range(n)]
    assert g.passes(tree, objects, None)
    for i, j in ((0, n - 1), (n - 2, n - 1)):
        if i != j:
            same = list(objects)
            same[i] = same[j]
            assert not g.passes(tree, same, None)


@pytest.mark.parametrize("n", [2, 30])
def test_no_overlap(g, n):
    first, *others = items(n)
    tree = g.tree((first, NoOverlap(tuple(others))))
    tensors = [torch.zeros(4) for _ in range(n)]
    assert g.passes(tree, tensors, None)
    tensors[-1] = tensors[0].view(2, 2)
    assert not g.passes(tree, tensors, None)
    tensors[-1] = tensors[0].detach()
    assert not g.passes(tree, tensors, None)


def test_owned_values_in_relations(g):
    """Values that an access makes anew live until the relations have been checked."""
    from collections import deque

    tree = g.tree(*((Item(X, i), TypeIs(list)) for i in range(3)), (Item(X, 0), AllDistinct(items(3)[1:])))
    d = deque([[], [], []])
    assert g.passes(tree, d, None)
    d[2] = d[0]
    assert not g.passes(tree, d, None)


def test_a_failing_relation_is_named(g):
    tree = g.tree((X, TypeIs(list)), (X, SameObject(Y)))
    assert tree.failing(function_of_two, ([], [])) == 1
    assert tree.failing(function_of_two, ((), [])) == 0


def function_of_two(x, y): ...


@pytest.mark.parametrize("n", [2, 30])
def test_shares_storage(g, n):
    first, *others = items(n)
    tree = g.tree((first, SharesStorage(tuple(others))))
    base = torch.zeros(4)
    tensors = [base, *(base.view(2, 2) for _ in range(n - 1))]
    assert g.passes(tree, tensors, None)
    for other in (torch.zeros(4), 1, None):
        assert not g.passes(tree, [*tensors[:-1], other], None)
        assert not g.passes(tree, [other, *tensors[1:]], None)


def test_shares_storage_in_words(g):
    base = torch.zeros(4)
    tree = g.tree((X, SharesStorage((Y,))))
    assert first_failure(tree, subject, {"x": base, "y": base[1:]}) is None
    failure = first_failure(tree, subject, {"x": base, "y": torch.zeros(4)})
    assert failure.message == "x: must share memory with y, but one of the tensors does not share memory"


def test_tensors_without_storage_share_nothing(g):
    sparse = torch.zeros(4).to_sparse()
    assert not g.passes(g.tree((X, SharesStorage((Y,)))), sparse, sparse)


def subject(x, y): ...
