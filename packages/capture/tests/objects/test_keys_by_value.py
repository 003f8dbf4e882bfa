"""Keys of dictionaries that are made anew and equal are the same key: nothing is compiled again."""

import collections
import math
import pickle

import pytest
import torch

import fxstack_capture as fx

KEYS = {
    "tuple": lambda: ("size", (), pickle.dumps({})),
    "float": lambda: float("2.5"),
    "bytes": lambda: pickle.dumps(1),
    "none": lambda: None,
    "bool": lambda: True,
    "complex": lambda: complex("1j"),
    "dtype": lambda: (int("1000"), torch.float32),
    "device": lambda: torch.device("cpu"),
    "nested": lambda: ((int("1000"), (str(1000),)), frozenset([str(2000)])),
}


class Memo:
    def __init__(self, kind, items):
        self.cache = kind(items)


def looked_up(memo, key, x):
    return x * memo.cache[key]


def asked(memo, key, x):
    return x * 2 if key in memo.cache else x


def walked(memo, key, x):
    for value in memo.cache.values():
        x = x * value
    return x


def gotten(memo, key, x):
    return x * memo.cache.get(key, 7)


def stored(memo, key, x):
    memo.cache[key] = 5
    return x * memo.cache.pop(key, 7) + len(memo.cache)


@pytest.mark.parametrize("fn", [looked_up, asked, walked, gotten, stored])
@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
@pytest.mark.parametrize("make", KEYS.values(), ids=KEYS)
def test_equal_keys_are_one_graph(make, kind, fn):
    graphs = []

    def backend(graph_module, _):
        graphs.append(graph_module)
        return graph_module.forward

    compiled = fx.optimize(backend, options=fx.CaptureOptions(dynamic=False))(fn)
    x = torch.ones(3)
    for _ in range(4):
        ours, theirs = (Memo(kind, [("other", 2), (make(), 3)]) for _ in range(2))
        assert torch.equal(compiled(ours, make(), x), fn(theirs, make(), x))
        assert list(ours.cache.items()) == list(theirs.cache.items())
    assert len(graphs) == 1


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
def test_nan_is_a_key(kind):
    compiled = fx.optimize()(gotten)
    for key in (math.nan, (math.nan,)):
        for asked_for in (key, 1):
            memo, x = Memo(kind, {key: 3}), torch.ones(2)
            assert torch.equal(compiled(memo, asked_for, x), gotten(memo, asked_for, x))


def test_numbers_of_several_types_are_one_key():
    compiled = fx.optimize()(gotten)
    for key in (1, True, 1.0, 1 + 0j):
        for asked_for in (1, True, 1.0):
            memo = Memo(dict, {key: 3})
            assert torch.equal(compiled(memo, asked_for, torch.ones(2)), torch.full((2,), 3.0))


def replaced(memo, key, x):
    del memo.cache[1]
    memo.cache[key] = 9
    return x + len(memo.cache)


def test_a_key_that_is_stored_anew_is_the_new_object():
    compiled = fx.optimize()(replaced)
    for key in (True, 1.0, 1):
        memo, plain = Memo(dict, {1: 3, 2: 4}), Memo(dict, {1: 3, 2: 4})
        assert torch.equal(compiled(memo, key, torch.ones(2)), replaced(plain, key, torch.ones(2)))
        assert str(memo.cache) == str(plain.cache)
