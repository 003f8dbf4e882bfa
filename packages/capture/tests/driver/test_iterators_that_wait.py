"""Iterators that leave a graph before the list that they stand in has got what the program added to it."""

import collections

import pytest
import torch
from running import check

X = torch.tensor([1.0, 2.0, 3.0])


class Counted(list):
    def __iter__(self):
        self.consumed = getattr(self, "begun", 0) + 1
        return super().__iter__()


def in_a_loop(x, items):
    items.append(1)
    seen = []
    for item in items:
        seen.append(item)
        print(item)
    return seen, x + 1


def at_the_end(x, items):
    items.append(1)
    it = iter(items)
    seen = len(list(zip(items, it)))
    it = iter(items)
    for _ in range(seen):
        next(it)
    print("break")
    items.append(7)
    return list(it), x + 1


def backwards(x, items):
    items += [1, 2]
    it = reversed(items)
    next(it)
    print("break")
    items.append(3)
    return list(it), x + 1


def walked(items):
    yield from items


def in_a_generator(x, items):
    items.append(1)
    it = walked(items)
    first = [next(it) for _ in items]
    print("break")
    items.append(2)
    return first, list(it), x + 1


def that_is_returned(x, items):
    items.append(1)
    it = enumerate(items)
    next(it)
    return x + 1, next(it, None), it


def of_a_new_list(x, items):
    new = Counted([1, *items])
    it = iter(new)
    next(it)
    new.append(it)
    print("break")
    return list(it)[-1] is it, new.consumed, x + 1


@pytest.mark.parametrize("program", [in_a_loop, at_the_end, backwards, in_a_generator, of_a_new_list])
@pytest.mark.parametrize("items", [[], [5], collections.UserList([5])])
def test_over_breaks(program, items):
    check(program, X, items)


@pytest.mark.parametrize("items", [[], [5], [5, 6]])
def test_returned(items):
    def program(x, held):
        result, item, it = that_is_returned(x, held)
        held.append(9)
        return result, item, list(it)

    check(program, X, items)
    check(lambda x, held: list(that_is_returned(x, held)[2]), X, items)
