"""Random programs behave the same compiled and plain. ``sweeps/programs.py`` runs more of them."""

import warnings

import pytest
from differential import compare
from language_programs import language_program


@pytest.mark.parametrize("seed", range(6))
def test_programs_with_graph_breaks(seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert compare(seed) is None


@pytest.mark.parametrize("seed", range(100, 108))
def test_programs_without(seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert compare(seed, breaks=False) is None


@pytest.mark.parametrize("seed", [41, 58, 1000])
def test_programs_of_more_of_the_language(seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert compare(seed, write=language_program) is None
