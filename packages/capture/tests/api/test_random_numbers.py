"""Python's random numbers in compiled code: drawn anew in every call, in eager's order, leaving eager's state."""

import random
import warnings

import pytest
import torch
from beside import Breaks
from same import difference

from fxstack_capture import explain, optimize
from fxstack_capture.driver.errors import TracingWarning

X = torch.arange(1.0, 4.0)


class Model(torch.nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = layers
        self.rng = random.Random(7)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x) * self.rng.gauss(1, 0.1)
        return x, self.rng.random()


def observe(fn, make, call):
    random.seed(call)
    args = make()
    try:
        seen = fn(*args)
    except Exception as error:
        seen = type(error), str(error)
    rng = getattr(args[0], "rng", random)
    return seen, args[1:], random.getstate(), rng.getstate()


def breaks_of(fn, make=lambda: (X.clone(),), calls=3):
    """Breaks of ``fn``; fails unless results and all generators are as in plain Python, call after call."""
    watch = Breaks()
    compiled = optimize(observer=watch)(fn)
    for call in range(calls):
        expected = observe(fn, make, call)
        with warnings.catch_warnings():
            warnings.simplefilter("error", TracingWarning)
            found = observe(compiled, make, call)
        assert difference(found, expected) is None, difference(found, expected)
    return watch.ids


def seeded(x):
    random.seed(3)
    return x + random.random(), random.random()


def epoch(x):
    order = list(range(x.shape[0]))
    random.shuffle(order)
    weights = [0.5, 1.5, 2.5]
    random.shuffle(weights)
    return x[torch.tensor(order)], x * torch.tensor(weights), weights, order, random.random()


def own_generator(x):
    own = random.Random(5)
    items = [x, x + 1, x + 2]
    own.shuffle(items)
    return [*items, own.random(), own.choice(items)]


ONE_GRAPH = {
    "random": lambda x: x * random.random(),
    "number leaves": lambda x: (x + 1, random.uniform(1, 2), random.randint(0, 5)),
    "order": lambda x: [x * random.random(), random.gauss(0, 1), x + random.randint(-3, 3)],
    "loop": lambda x: [x * random.random() for _ in range(4)],
    "rounding": lambda x: (lambda d: (x * (d * 0.1 * 10), (d + 0.1) - d))(random.random()),
    "lists": lambda x: (x * sum(random.choices([1, 2, 3], k=3)), random.sample(range(99), 4)),
    "choice": lambda x: x * random.choice((1.5, 2.5)),
    "keywords": lambda x: x * random.triangular(low=1, high=4, mode=2),
    "int": lambda x: x + int(random.random() * 10),
    "bits": lambda x: x + random.getrandbits(8),
    "seed": seeded,
    "own": own_generator,
}

BREAKS = {
    "branch": lambda x: x + 1 if random.random() < 0.5 else x - 1,
    "range": lambda x: [x + i for i in range(random.randint(1, 3))],
    "size": lambda x: x[: random.randint(1, 3)] * 2,
    "divided": lambda x: x * (1 / random.uniform(-1, 1)),
    "modulo": lambda x: x * (7 % random.randint(0, 1)),
    "text": lambda x: (x + 1, f"{random.random():.3f}"),
    "key": lambda x: {random.randint(0, 5): x + 1},
    "objects": lambda x: random.choice([x, x + 1]) * 2,
    "mixed": lambda x: x * random.choice([1, 2.5]),
    "method of a float": lambda x: (x + 1, random.random().hex(), random.random().is_integer()),
    "method of an int": lambda x: (x + 1, random.randint(0, 9).bit_length()),
    "wide": lambda x: (x + 1, random.getrandbits(70), random.randint(0, 1 << 80)),
    "error": lambda x: x + random.randint(5, 1),
    "state": lambda x: (x + 1, random.getstate()),
    "unseeded": lambda x: x * random.Random().random() * 0,
}


@pytest.mark.parametrize("fn", ONE_GRAPH.values(), ids=ONE_GRAPH)
def test_drawn_in_one_graph(fn):
    assert breaks_of(fn) == []


@pytest.mark.parametrize("fn", BREAKS.values(), ids=BREAKS)
def test_what_looks_at_a_drawn_number_breaks(fn):
    assert breaks_of(fn)


def test_a_generator_of_a_module():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(3, 3) for _ in range(2)]
    assert breaks_of(lambda m, x: m(x), lambda: (Model(layers), X)) == []


def test_shuffled_numbers():
    assert breaks_of(epoch, calls=5) == []


@pytest.mark.parametrize("items", [[1, 2.5], (1, 2), "abc", [2, 1], 3])
def test_what_else_is_shuffled_breaks(items):
    kind = type(items)

    def shuffled(x, items):
        random.shuffle(items)
        return x + 1, items

    assert breaks_of(shuffled, lambda: (X, kind(items)))


@pytest.mark.parametrize("items", [(1, 2.5), (1, None), (1 << 70, 2)])
def test_what_else_is_put_into_a_list_and_shuffled_breaks(items):
    def shuffled(x):
        made = [*items]
        random.shuffle(made)
        return x + 1, made

    assert breaks_of(shuffled)


def test_shuffled_objects():
    def shuffled(x):
        items = [x, x + 1, x + 2]
        random.shuffle(items)
        return items, random.random()

    assert breaks_of(shuffled)


def test_a_subclass_keeps_its_methods():
    class Fixed(random.Random):
        def random(self):
            return 0.25

    rng = Fixed(1)
    breaks_of(lambda x: x * rng.uniform(1, 2))


def test_arguments_that_change():
    breaks_of(lambda x, k: x * random.randint(0, k), lambda: (X, random.randint(1, 9)), calls=5)


def test_a_break_says_that_the_number_is_random():
    text = str(explain(lambda x: x + 1 if random.random() < 0.5 else x - 1)(X))
    assert "a number drawn at random" in text
