"""``functools.lru_cache``: results, their identity, how often the function runs, and the counts are those of plain Python."""

import functools
from pathlib import Path

import pytest
import torch
from counting import Counting

import fxstack_capture as fx
from fxstack_capture import native
from fxstack_capture.objects.cache_keys import is_typed, key_of, keyword_mark

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")


def both(make):
    """What calls of ``make(compiler, log)`` give and leave in ``log``, plain and compiled; then the number of graphs."""
    results = []
    backend = Counting()
    for compiler in (lambda fn: fn, fx.optimize(backend)):
        log = []
        results.append((make(compiler, log), log))
    assert results[0] == results[1]
    return len(backend.graphs)


def test_a_constant_is_computed_once_and_counted():
    def make(compiler, log):
        @functools.lru_cache
        def twice(n):
            log.append(n)
            return n * 2

        compiled = compiler(lambda x: x * twice(3))
        values = [compiled(torch.ones(2)).tolist() for _ in range(4)]
        return values, twice.cache_info()

    assert both(make) == 1


def test_a_function_without_effects_is_in_the_graph_of_the_first_call():
    def make(compiler, _log):
        @functools.cache
        def twice(n):
            return n * 2

        compiled = compiler(lambda x: x * twice(3) + twice(n=4))
        compiled(torch.ones(2))
        first = twice.cache_info()
        compiled(torch.ones(2))
        return first, twice.cache_info()

    assert both(make) == 1


def test_cached_tensors_and_lists_are_the_same_objects():
    def make(compiler, log):
        @functools.cache
        def mask(n):
            log.append(n)
            return torch.rand(n, n)

        @functools.cache
        def names(n):
            return [n]

        def fn(x):
            found = names(2)
            found.append(len(found))
            return x @ mask(x.shape[-1]), found

        torch.manual_seed(0)
        compiled = compiler(fn)
        values = [compiled(torch.ones(1, 2)) for _ in range(3)]
        same = all(found is names(2) for _, found in values)
        return [(y.tolist(), list(found)) for y, found in values], same, torch.rand(1).item()

    assert both(make) >= 1


def test_clearing_and_eviction_are_heard_of():
    def make(compiler, log):
        @functools.lru_cache(maxsize=2)
        def twice(n):
            log.append(n)
            return n * 2

        compiled = compiler(lambda x: x * twice(3) + twice(4))
        for _ in range(2):
            compiled(torch.ones(1))
        twice.cache_clear()
        compiled(torch.ones(1))
        twice(5)
        compiled(torch.ones(1))
        return twice.cache_info()

    both(make)


def test_what_is_cached_stays_when_its_reasons_change():
    scale = [2]

    def make(compiler, _log):
        scale[0] = 2

        @functools.cache
        def scaled(n):
            return n * scale[0]

        compiled = compiler(lambda x: x * scaled(3))
        found = [compiled(torch.ones(1)).item()]
        scale[0] = 5
        found.append(compiled(torch.ones(1)).item())
        scaled.cache_clear()
        return [*found, compiled(torch.ones(1)).item()]

    both(make)


@pytest.mark.parametrize("ask", ["cache_info", "cache_clear"])
def test_asking_the_cache_inside(ask):
    def make(compiler, log):
        @functools.lru_cache
        def twice(n):
            log.append(n)
            return n * 2

        def fn(x):
            y = x * twice(3)
            found = getattr(twice, ask)()
            return y * twice(3), found

        compiled = compiler(fn)
        return [str(compiled(torch.ones(1))) for _ in range(3)]

    both(make)


def test_methods_keyed_by_their_object():
    class Table:
        def __init__(self, log):
            self.log = log

        @functools.lru_cache  # noqa: B019 - as programs do
        def row(self, n, *, scale=1):
            self.log.append((n, scale))
            return torch.arange(n) * scale

    def make(compiler, log):
        table = Table(log)
        compiled = compiler(lambda x: x + table.row(2) + table.row(2, scale=3))
        return [compiled(torch.zeros(2)).tolist() for _ in range(3)]

    assert both(make) == 1


class Cubed:
    def __init__(self, number):
        self.number = number

    @functools.lru_cache  # noqa: B019
    def cube(self, other=0):
        return self.number**3 + other

    def plain(self):
        return self.number


@functools.cache
def number_of(method, also=None):
    return method() + (also[0].number if also else 0)


@pytest.mark.parametrize(
    "ask",
    [
        lambda one: one.cube(),
        lambda one: one.cube(other=2),
        lambda one: number_of(one.plain),
        lambda one: number_of(int, (one, 2)),
    ],
)
def test_other_objects_at_the_same_place_have_results_of_their_own(ask):
    def make(compiler, _log):
        objects = [Cubed(number) for number in (2, 3, 4)]
        for one in objects:
            ask(one)
        compiled = compiler(lambda one, x: x * ask(one))
        return [compiled(one, torch.ones(2)).tolist() for one in objects * 2]

    assert both(make) <= 3


def test_equal_tuples_are_one_key():
    def make(compiler, _log):
        product = functools.cache(lambda sizes: sizes[0] * sizes[1][0])
        compiled = compiler(lambda sizes, x: x * product(sizes))
        return [compiled((3, (int("4"), "a")), torch.ones(2)).tolist() for _ in range(3)]

    assert both(make) == 1


def test_cached_functions_and_classes_are_the_same_objects():
    def make(compiler, _log):
        @functools.cache
        def maker(n):
            return lambda x: x * n

        @functools.cache
        def kind(n):
            return type(f"Kind{n}", (), {"n": n})

        def fn(x):
            return maker(3)(x) + kind(2).n, maker(3), kind(2)

        compiled = compiler(fn)
        found = [compiled(torch.ones(1)) for _ in range(3)]
        return [(y.item(), f is maker(3), k is kind(2)) for y, f, k in found]

    both(make)


def test_a_break_inside_of_a_cached_function():
    def make(compiler, log):
        @functools.cache
        def heard(n):
            log.append(n)
            Path("/dev/null").open().close()
            return n

        compiled = compiler(lambda x: (x + 1) * heard(3))
        return [compiled(torch.ones(1)).item() for _ in range(3)], heard.cache_info()

    assert both(make) == 1


def test_functions_that_raise_or_miss_every_time():
    def make(compiler, log):
        @functools.cache
        def refuse(n):
            log.append(n)
            raise ValueError(n)

        count = iter(range(100))

        @functools.lru_cache(maxsize=1)
        def numbered(n):
            return [n, next(count)]

        def fn(x):
            try:
                refuse(3)
            except ValueError as error:
                return x + error.args[0] + numbered(1)[1] + numbered(2)[1]

        compiled = compiler(fn)
        return [compiled(torch.zeros(1)).item() for _ in range(8)]

    both(make)


def test_unhashable_keys_raise():
    @functools.cache
    def length(values):
        return len(values)

    compiled = fx.optimize(Counting())(lambda x: x + length([1, 2]))
    with pytest.raises(TypeError, match="unhashable type: 'list'"):
        compiled(torch.ones(1))


@pytest.mark.parametrize("key", [lambda x: x.shape, lambda x: (1, tuple(x.shape))])
def test_sizes_in_a_key_stay_symbolic(key):
    """As einops has them, whose functions ask a cache how a shape is taken apart."""

    @functools.lru_cache
    def half(key):
        return key[-1][-1] // 2 if isinstance(key[-1], tuple) else key[-1] // 2

    backend = Counting()
    compiled = fx.optimize(backend, dynamic=True)(lambda x: x * half(key(x)))
    for n in (4, 5, 9, 12):
        assert torch.equal(compiled(torch.ones(2, n)), torch.ones(2, n) * (n // 2))
    assert len(backend.graphs) == 1


def test_one_recompilation_is_not_said_of_calls_that_were_postponed():
    @functools.cache
    def row(n):
        return torch.arange(n)

    compiled = fx.optimize(Counting(), options=fx.CaptureOptions(error_on_recompile=True))(
        lambda x: x + row(2)
    )
    for _ in range(3):
        assert compiled(torch.zeros(2)).tolist() == [0, 1]


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("maxsize", [None, 3])
def test_keys_are_those_of_cpython(typed, maxsize):
    cached = functools.lru_cache(maxsize, typed)(lambda *args, **kwargs: (args, kwargs))
    assert keyword_mark()
    assert is_typed(cached) is typed
    for args, kwargs in (
        ((), {}),
        ((1,), {}),
        (("a",), {}),
        ((1.0,), {}),
        ((1, 2), {"c": 3}),
        ((), {"b": 1, "a": 2}),
    ):
        result = cached(*args, **kwargs)
        counts = cached.cache_info()
        assert native.cached(cached, key_of(args, kwargs, typed=typed)) is result
        assert cached.cache_info() == counts
    assert native.cached(cached, ("none",)) is native.NOT_CACHED


def test_calls_that_wait_for_the_cache_are_explained():
    @functools.lru_cache
    def made(n):
        return [n]

    frames = fx.explain(lambda x: x * made(3)[0])(torch.ones(2)).frames
    assert [frame.verdict for frame in frames] == ["plain"]
    assert "made, whose cache does not hold the result," in frames[0].why
