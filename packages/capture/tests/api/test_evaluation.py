# ruff: noqa: S307, S102 - programs
"""``eval``, ``exec`` and ``compile`` of constant text: part of the graph, with the names and errors of their scope."""

from __future__ import annotations

import pytest
import torch
from beside import breaks_beside_plain

SCALE = 3
EXPRESSION = compile("x * SCALE", "<kept>", "eval")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer0, self.layer1 = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
        self.seen = 0

    def forward(self, x):
        for i in range(2):
            x = eval(f"self.layer{i}")(x)
            exec(f"self.seen += {i + 1}")
        return x, self.seen


MODEL = Model()


def of_modules(x):
    MODEL.seen = 0
    return MODEL(x)


def of_names(x):
    y, z = x + 1, 2

    def inner():
        return eval("  y * z") + z * len(str(y is None))

    return eval("x * SCALE + y"), inner(), eval("max(SCALE, 5)"), eval(EXPRESSION)


def of_functions(x):
    double = eval("lambda t: t * 2 * SCALE")
    made = eval("[i * SCALE for i in range(3)]")
    return double(x), made, double.__name__, eval("(lambda t: t is x)") is None


def compiled_first(x):
    code = compile("SCALE + 1\n", "somewhere", "eval")
    return x * eval(code), code.co_filename


def of_globals(x):
    exec("global MADE; MADE = 4")
    return x * MADE  # noqa: F821


def in_a_class(x):
    class Inner:
        a = 2
        b = eval("a * SCALE")

    return x * Inner.b


def with_errors(x):
    found = []
    for text in ("nothing + 1", "1 +", "x.missing", "1 // 0", "y"):
        try:
            found.append(eval(text))
        except Exception as error:
            found.append((type(error), str(error), error.__traceback__.tb_next is None))
    y = x
    return y, found


def of_all_names(x):
    a, b = 1, x
    return x + a, eval("sorted(dir())"), eval("sorted(locals())"), eval("sorted(vars())"), b


def raises(x):
    return x + eval("len(5)")


def annotated(x):
    exec("def f(a: nowhere): pass\nglobal ANNOTATED; ANNOTATED = f.__annotations__")
    return x, ANNOTATED  # noqa: F821


def x_and_one():
    return (torch.ones(2),)


WHOLE = [
    of_modules,
    of_names,
    of_functions,
    compiled_first,
    of_globals,
    in_a_class,
    with_errors,
    of_all_names,
]


@pytest.mark.parametrize("program", [*WHOLE, raises], ids=lambda fn: fn.__name__)
def test_is_part_of_the_graph(program):
    assert breaks_beside_plain(program, x_and_one) == []


def binding(x):
    exec("y = 5")
    return x + eval("y if 'y' in globals() else 1")


def own_names(x):
    names = {"x": x}
    exec("y = x * 2", names)
    return names["y"], eval("a + 1", {}, {"a": 2}), eval("(k := 2) + k")


def warned_about(x):
    return x * eval("1 if x is 'a' else 2")


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("program", [binding, own_names, warned_about, annotated])
def test_what_is_done_in_plain_python(program):
    assert "side-effect-call" in breaks_beside_plain(program, x_and_one)
