"""Programs of libraries run on fxstack unedited: graphs are made, nothing falls back, and results are eager's."""

import importlib.util

import pytest
from libraries.run import LIBRARIES, PROGRAMS, run


@pytest.mark.parametrize("program", PROGRAMS)
def test_results_are_eagers(program):
    library = LIBRARIES.get(program)
    if library is not None and importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed: python -m nox -s libraries")
    found, expected = run(program, "fxstack"), run(program, "eager")
    assert found["graphs"] > 0
    assert found["said"] == []
    assert found["losses"] == pytest.approx(expected["losses"], rel=1e-4, abs=1e-5)
