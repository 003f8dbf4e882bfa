"""Lists that programs add to: code that does not ask what is in a list is compiled once for all lengths."""

import pytest
import torch
from counting import Counting
from running import check, observe
from same import difference

import fxstack_capture as fx

X = torch.tensor([1.0, 2.0, 3.0])
SEEN = []


class Recorder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.history, self.both = [], []

    def forward(self, x):
        y = x * 2
        self.history.append(y)
        self.both.extend((y, 1))
        return y + 1


class Property:
    def __init__(self):
        self.items = []

    @property
    def log(self):
        return self.items


def to_global(x):
    SEEN.append(x.sum())
    return x * 2


def to_closure():
    seen = []

    def add(x):
        seen.append(x + 1)
        return x * 2

    return add, seen


def compiled_once(fn, *args, calls=12):
    """Call ``fn`` many times, compiled; how many graphs that took."""
    backend = Counting()
    optimised = fx.optimize(backend)(fn)
    for _ in range(calls):
        optimised(*args)
    return len(backend.graphs)


def test_attribute():
    plain, module = Recorder(), Recorder()
    assert compiled_once(module, X) == 1
    for _ in range(12):
        plain(X)
    assert len(module.history) == 12
    assert all(map(torch.equal, module.history, plain.history))
    assert len(module.both) == 24
    assert module.both[-1] == 1


def test_global():
    SEEN.clear()
    assert compiled_once(to_global, X) == 1
    assert SEEN == [X.sum()] * 12


def test_closure():
    add, seen = to_closure()
    assert compiled_once(add, X) == 1
    assert len(seen) == 12


def test_hook():
    layer, seen = torch.nn.Linear(3, 3), []
    layer.register_forward_hook(lambda _module, _args, out: seen.append(out.detach()))
    assert compiled_once(layer, X) == 1
    assert len(seen) == 12


def loop(x, count):
    out = []
    for _ in range(count):
        x = x + 1
        fx.graph_break()
        out.append(x * 2)
    return out


def loop_with_broken_argument(x, count):
    out = []
    for _ in range(count):
        out.append(broken(x) * 2)
    return out


def broken(x):
    fx.graph_break()
    return x + 1


def nested_loop(x, count):
    return loop(x + 1, count) + loop_with_broken_argument(x, count)


def test_nested_loop():
    assert len(check(nested_loop, X, 20)) <= 12


def test_loop():
    assert len(check(loop, X, 20)) <= 4


def test_loop_with_broken_argument():
    assert len(check(loop_with_broken_argument, X, 20)) <= 4


def length_later(x, out):
    out.append(x)
    return x * len(out)


def item_later(x, out):
    out.append(x + 1)
    return out[0] * 2


def added_to_itself(x, out):
    out.extend(out)
    out.append(x)
    return x * 2


def seen_by_another_name(x, out):
    other = [out]
    out.append(x + 1)
    out.append(other)
    other[0].append(x + 2)
    return x * out.index(7), other[0] is out


def iterated(x, out):
    out.append(x)
    return sum(t * 2 for t in out)


def appended_while_iterated(x, out):
    for t in out:
        if len(out) < 6:
            out.append(x * t)
    return x + 1


def method_kept(x, out):
    add = out.append
    add(x)
    add.__self__.append(x * 2)
    return x + len(add.__self__)


def property_of_object(x, out):
    holder = Property()
    holder.items = out
    holder.log.append(x)
    return holder.log[0] + x, holder


def cleared(x, out):
    out.append(x)
    out.clear()
    out.append(x * 2)
    return x * 3


def replaced_in_between(x, out):
    out.append(x * 1)
    out[0] = x * 2
    del out[1]
    out.append(x * 3)
    return out


def read_after_break(x, out):
    out.append(x * 2)
    fx.graph_break()
    out.append(x * 3)
    fx.graph_break()
    return out[-1] + out[-2], out


def raising(x, out):
    out.append(x * 2)
    out.append(x.view(7))


@pytest.mark.parametrize(
    "fn",
    [
        length_later,
        item_later,
        added_to_itself,
        seen_by_another_name,
        iterated,
        appended_while_iterated,
        method_kept,
        property_of_object,
        cleared,
        replaced_in_between,
        read_after_break,
        raising,
    ],
)
def test_what_was_there_before_counts(fn):
    check(fn, X, [7, 8])


def measured(x, xs):
    for i, t in enumerate(xs):
        x = (x + t) * (i + 1) / len(xs)
        fx.graph_break()
    return x


def indexed(x, xs):
    for i in range(len(xs)):
        x = x + xs[i] - xs[i - 1]
        fx.graph_break()
    return x


def last(x, xs):
    for t in xs[:]:
        x = x + t * xs[-1]
        fx.graph_break()
        xs.append(x)
    return x


@pytest.mark.parametrize("fn", [measured, last])
def test_length_and_items_alone(fn):
    assert len(check(fn, X, [X * i for i in range(20)], calls=2)) <= 5


@pytest.mark.parametrize(
    "fn",
    [
        indexed,
        lambda x, xs: x * (xs.append(x) or len(xs)) * xs[0] + xs[-1],
        lambda x, xs: x * len(xs) + xs[len(xs) - 1] + xs[-len(xs)],
        lambda x, xs: (x * 2, xs[7]),
        lambda x, xs: (x * 2, xs[-7]),
        lambda x, xs: (x * 2, xs[True], xs[1:], xs[::-1]),
        lambda x, xs: (x * 2, xs[x]),
        lambda x, xs: (x * 2, xs["a"]),
        lambda x, xs: (x * xs[0], xs.extend([1, x]), xs[0], xs[-1], len(xs)),
        lambda x, xs: (x + xs[0], [len][0](xs), (lambda size: size)(xs)),
        lambda x, xs: (x + xs[0], xs.__setitem__(0, x), xs[0] is x, xs[1]),
        lambda x, xs: (x + xs[1], xs[1] is xs[-2], xs[0] is xs[1], len(xs)),
    ],
)
def test_length_and_items(fn):
    check(fn, X, [X * 3, X * 4, X * 5])


def test_other_lengths_and_items():
    optimised = fx.optimize()(lambda x, xs: x * xs[1] + len(xs) + xs[-1])
    for xs in ([1, 2, 3], [1, 2], [5, 2], [1, 2, 3, 4], [X, X * 2], [X, X, X]):
        assert torch.equal(optimised(X, xs), X * xs[1] + len(xs) + xs[-1])


def two_names(x, one, other):
    one.append(x)
    other.append(x + 1)
    return x * 2


def test_same_list_or_not():
    backend = Counting()
    optimised = fx.optimize(backend)(two_names)
    shared, apart = [], ([], [])
    optimised(X, *apart)
    optimised(X, shared, shared)
    assert [len(part) for part in apart] == [1, 1]
    assert torch.equal(torch.stack(shared), torch.stack([X, X + 1]))


def test_subclass_is_read():
    class Own(list):
        def append(self, item):
            super().append((len(self), item))

    check(lambda x, out: (out.append(x * 2), x + 1), X, Own([1]))


WEIGHTS = [torch.full((3,), float(k)) for k in range(12)]


def indexed(x, i):
    return x * WEIGHTS[i]


def shifted(x, i):
    return x * WEIGHTS[i + 1] + WEIGHTS[i - 1]


def in_turn(x, i):
    return x * WEIGHTS[i % 5] + WEIGHTS[i // 2]


def added_in_front(x, i):
    seen = [*WEIGHTS]
    fx.graph_break()
    seen.append(x)
    return x * seen[i] + seen[-1]


def written_behind(x, i):
    seen = [*WEIGHTS]
    fx.graph_break()
    y = x * seen[i]
    seen[2] = y
    return y, seen


def changed_item(x, i):
    kept = [w.clone() for w in WEIGHTS]
    fx.graph_break()
    kept[i].add_(x)
    return kept, kept[2] * 2


def same_item(x, i):
    kept = [w.clone() for w in WEIGHTS]
    first = kept[2]
    fx.graph_break()
    kept[i].add_(x)
    return first * 2, kept[i] is first


def too_far(x, i):
    return x * WEIGHTS[i + 20]


@pytest.mark.parametrize(
    "fn", [indexed, shifted, in_turn, added_in_front, written_behind, changed_item, same_item, too_far]
)
def test_index_that_changes(fn):
    """Each index in turn, from both ends, compiled once or twice; the same items, exceptions and effects as in eager."""
    optimised = fx.optimize(Counting())(fn)
    for i in (0, 1, 2, 3, 4, -1, -2, 5, 2, 12, 13, -13):
        found, expected = observe(optimised, (X, i)), observe(fn, (X, i))
        assert difference(found, expected) is None, i


@pytest.mark.parametrize("fn", [indexed, shifted, in_turn])
def test_index_that_changes_compiles_once(fn):
    backend = Counting()
    optimised = fx.optimize(backend)(fn)
    for i in range(1, 11):
        optimised(X, i)
    assert len(backend.graphs) <= 3


def test_index_into_layers():
    """Layers of one kind by their number: one graph for the rounds of the loop."""
    layers = [torch.nn.Linear(3, 3) for _ in range(12)]

    def f(x):
        for i in range(len(layers)):
            x = layers[i](x)
            fx.graph_break()
        return x

    backend = Counting()
    optimised = fx.optimize(backend)(f)
    assert torch.allclose(optimised(X), f(X))
    assert torch.allclose(optimised(X), f(X))
    assert len(backend.graphs) <= 3


def test_length_that_changes():
    """A number like any other: compiled once for all lengths, and for each side of a comparison."""

    def measured():
        seen = []

        def f(x):
            seen.append(x)
            return x * len(seen), len(seen) > 4

        return f

    backend = Counting()
    plain, compiled = measured(), fx.optimize(backend)(measured())
    for _ in range(12):
        assert difference(compiled(X), plain(X)) is None
    assert len(backend.graphs) <= 3


def test_defaults_of_functions_made_anew():
    def f(x):
        for add in [lambda t, k=k: t + k for k in range(10)]:
            x = add(x)
            fx.graph_break()
        return x

    backend = Counting()
    optimised = fx.optimize(backend)(f)
    assert torch.equal(optimised(X), f(X))
    assert torch.equal(optimised(X), f(X))
    assert len(backend.graphs) <= 4


LAYERS = [torch.nn.Linear(3, 3) for _ in range(12)]


def called_global(x):
    for i in range(12):
        x = torch.relu(LAYERS[i](x))
        fx.graph_break()
    return x


def test_items_that_are_called():
    assert compiled_once(called_global, X) <= 3
