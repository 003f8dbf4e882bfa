"""``re`` on constants is answered while tracing, whatever its cache holds, and guards nothing of that."""

import re

import pytest
import torch

import fxstack_capture as fx

X = torch.arange(3.0)

PROGRAMS = {
    "match": lambda x: x + int(re.match(r"(\d+)\.(\d+)", "2.13.0").group(2)),
    "compile": lambda x: (x + 1, re.compile("a+", re.IGNORECASE).findall("AaBa")),
    "a_function_for_replacements": lambda x: (
        x * 2,
        re.sub(r"\d", lambda found: str(int(found.group()) + 1), "a1b2"),
    ),
    "finditer": lambda x: [x * found.start() for found in re.finditer("b", "abcb")],
    "a_compiled_one_again": lambda x: (x * 2, re.fullmatch(re.compile("a|b"), "b").span()),
    "a_pattern_leaves": lambda x: (x + 1, re.compile("a+|b")),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_eager(name):
    program = PROGRAMS[name]
    expected = program(X)
    re.purge()
    found = fx.optimize(fullgraph=True)(program)(X)
    assert str(found) == str(expected)


def test_errors_are_those_of_re():
    def program(x):
        return x + 1, re.compile("(")

    with pytest.raises(re.error) as expected:
        program(X)
    with pytest.raises(re.error) as found:
        fx.optimize()(program)(X)
    assert str(found.value) == str(expected.value)


def test_other_patterns_in_the_cache_change_nothing():
    graphs = []

    def count(module, _inputs):
        graphs.append(module)
        return module

    compiled = fx.optimize(backend=count, fullgraph=True)(PROGRAMS["match"])
    for pattern in ("a", "b", "c"):
        re.compile(pattern)
        assert compiled(X).tolist() == [13, 14, 15]
    assert len(graphs) == 1
