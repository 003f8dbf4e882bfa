"""A sample of ``injecting``; ``sweeps/injected_errors.py`` runs every place with every error."""

import pytest
from injecting import cases, problem


@pytest.fixture(scope="module")
def sample():
    with pytest.MonkeyPatch.context() as patch:
        return cases(patch)[::3]


@pytest.mark.parametrize("share", range(4))
def test_errors_of_the_compiler_are_never_the_program_s(share, sample, monkeypatch):
    chosen = sample[share::4]
    assert len(chosen) > 5
    found = [(case, problem(*case, monkeypatch)) for case in chosen]
    assert [(case, text) for case, text in found if text] == []
