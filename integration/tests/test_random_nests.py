"""A sample of the random nests of operators with functions inside; ``sweeps/nests.py`` runs as many as one likes."""

import warnings

import pytest
from random_nests.running import PLAIN_NESTS, Outcome, Run, check, difference
from random_nests.shrinking import kind_of, shrink
from random_nests.writer import MAX_DEPTH, program

import fxstack

# Programs that once differed, raised, or did not fit into one graph.
ONCE_WRONG = {
    100035: "an index tensor under torch.func",
    100082: "a counter under vmap",
    100211: "operands of a nested loop that share memory",
    100326: "a nested operator in a scan in training",
    100835: "random numbers in the stacked loop of a gradient",
    101014: "a region under torch.func",
    101216: "unused random numbers in a branch",
    101497: "a counter under two layers of vmap",
    200991: "a second gradient of branches of different sizes",
    201097: "operands that share memory in the gradient of a branch",
    202562: "an expanded gradient of a size from data",
    212599: "a row at an index from a tensor in a branch of a gradient",
    100476: "a counter that changes between forward and backward",
    102263: "an element of a result that a nested function uses first",
    200552: "a loop under vmap under a gradient",
    202620: "a branch that the number of an iteration decides",
    202841: "one expression in two branches",
    203165: "wrap in a branch under vmap",
    300183: "an associative scan of an unknown length in a branch",
    302586: "a number of a loop as the first value of a scan",
}


@pytest.mark.parametrize("seed", range(500, 512))
def test_program_of_seed(seed):
    assert check(program(seed)).difference is None


@pytest.mark.parametrize("seed", ONCE_WRONG)
def test_program_once_wrong(seed):
    outcome = check(program(seed))
    assert (outcome.difference, outcome.refused, outcome.breaks) == (None, None, ())


@pytest.mark.parametrize(
    ("text", "differs"),
    [("internal error of a stage", True), ("x. The captured graph runs in eager torch.", False)],
)
def test_what_the_compiler_says_of_a_failure_counts(text, differs, monkeypatch):
    compiler = fxstack.compile

    def failing(fn, **options):
        warnings.warn(text)
        return compiler(fn, **options)

    monkeypatch.setattr(fxstack, "compile", failing)
    outcome = check(program(3), "eager")
    found = outcome.difference if differs else outcome.breaks[-1]
    assert text in found


def test_a_seed_is_always_the_same_program():
    assert program(3).source() == program(3).source()


def test_programs_are_nested_to_the_greatest_depth():
    assert {program(seed).function.depth() for seed in range(100)} == set(range(1, MAX_DEPTH + 1))


def test_another_number_is_a_difference():
    written = program(500)
    result = Run(written, PLAIN_NESTS)
    x, y = (t for t in result.arguments()[0])
    assert difference(result.call(x, y), result.call(x, y + 1)) is not None


def test_a_program_is_cut_down_while_it_differs():
    written = program(8)
    wrong = lambda p: Outcome("wrong" if "while_loop" in p.source() else None)
    before = len(written.source())
    shrink(written, kind_of(wrong(written)), wrong)
    assert "while_loop" in written.source()
    assert len(written.source()) < before
