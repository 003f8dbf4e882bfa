"""What Python 3.14 does otherwise: template strings, annotations that are computed later, context managers, frames that end."""

import sys

import pytest
import torch

import fxstack_capture as fx

pytestmark = pytest.mark.skipif(sys.version_info < (3, 14), reason="needs Python 3.14")
X = torch.tensor([1.0, 2.0])

SOURCE = """
import torch

def template(x):
    y = x + 1
    made = t"a{y.shape[0]!r:>3}b{2}"
    return y * 2, len(made.strings), sum(made.values)

def annotated(x):
    scale = 3
    def inner(a: int, b: Missing = 2) -> float:
        return a * scale
    return inner(x), inner

def subscripts(x):
    table = {"k": [x, x * 2]}
    return table["k"][1][0] + table["k"][-1][-1]

def small_numbers(x):
    return [x * n for n in (0, 1, 255, 256)], 255 is 255

def keywords(x):
    def inner(a, *, b=2, **more):
        return a * b + sum(more.values())
    return inner(x, b=3, c=1), inner(*[x], **{"d": 4}), inner(*(x,))

def inlined(x):
    return tuple(x * i for i in range(3)), all(i < 3 for i in range(3)), any(i > 3 for i in range(3))

def except_without_parentheses(x):
    try:
        raise KeyError("k")
    except ValueError, KeyError:
        return x + 2

def strict_map(x):
    try:
        return list(map(lambda a, b: a * b, [x, x], [1, 2, 3], strict=True))
    except ValueError as error:
        return str(error) != "", list(map(lambda a, b: a * b, [x, x], [1, 2], strict=True))

def placeholder(x):
    return functools.partial(lambda a, b, c: a - b * c, functools.Placeholder, 2.0)(x, 3)

def questions(x):
    return [operator.is_none(None), operator.is_not_none(x), heapq.heappop_max([3, 1, 2])], x

def record(x):
    @dataclasses.dataclass
    class Pair:
        a: Nowhere
        b: int = 2
    pair = Pair(x)
    return pair.a * pair.b, copy.replace(pair, b=3).b

def groups(x):
    try:
        raise ExceptionGroup("both", [ValueError(1), KeyError(2)])
    except* ValueError as error:
        count = len(error.exceptions)
    except* KeyError as error:
        count += 5
    return x * count

def managed(x, stop):
    with torch.no_grad():
        y = x * 2
        stop()
        z = y + 1
    try:
        with torch.enable_grad():
            stop()
            raise ValueError("a")
    except ValueError as error:
        z = z + len(str(error))
    for i in range(3):
        with torch.no_grad():
            if i == 2:
                break
            stop()
            z = z * 2
    return z

def loops(x, stop):
    for i in range(4):
        if i == 1:
            stop()
            continue
        x = x + i
    else:
        x = x * 2
    return x

class Half:
    def __enter__(self):
        return 1

async def nothing():
    pass

class Asynchronous:
    async def __aenter__(self): ...
    async def __aexit__(self, *raised): ...
"""


@pytest.fixture(scope="module")
def space():
    made = {"__name__": "python_314"}
    exec(compile(SOURCE, "<python 3.14>", "exec"), made)
    return made


@pytest.mark.parametrize("name", ["template", "subscripts", "small_numbers", "keywords", "inlined"])
def test_results_are_cpythons(space, name):
    torch.testing.assert_close(fx.optimize()(space[name])(X), space[name](X))


@pytest.mark.parametrize("name", ["managed", "loops"])
@pytest.mark.parametrize("stop", [fx.graph_break, lambda: None])
def test_continued_where_the_graph_ends(space, name, stop):
    with torch.no_grad():
        wanted = space[name](X, lambda: None)
    torch.testing.assert_close(fx.optimize()(space[name])(X, stop), wanted)


def test_annotations_are_computed_when_somebody_asks(space):
    result, inner = fx.optimize()(space["annotated"])(X)
    assert torch.equal(result, X * 3)
    with pytest.raises(NameError, match="Missing"):
        _ = inner.__annotations__
    space["Missing"] = str
    assert inner.__annotations__ == {"a": int, "b": str, "return": float}
    del space["Missing"]


@pytest.mark.parametrize("manager", [5, "Half", "Asynchronous"])
def test_what_is_no_context_manager(space, manager):
    value = space[manager]() if isinstance(manager, str) else manager

    def program(x):
        with value:
            return x + 1

    messages = []
    for run in (program, fx.optimize()(program)):
        with pytest.raises(TypeError) as caught:
            run(X)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_a_setting_that_changes_between_calls_is_seen():
    """Guards count the changes of dictionaries themselves."""
    settings = {"scale": 2.0}

    class Owner:
        pass

    owner = Owner()
    owner.shift = 1.0

    def program(x):
        return x * settings["scale"] + owner.shift

    compiled = fx.optimize()(program)
    for change in (
        lambda: None,
        lambda: settings.update(scale=3.0),
        lambda: setattr(owner, "shift", 2.0),
        lambda: vars(owner).update(shift=4.0),
        lambda: settings.__setitem__("scale", 5.0),
        lambda: (settings.clear(), settings.update(scale=6.0)),
    ):
        change()
        for _ in range(3):
            assert torch.equal(compiled(X), program(X))
