"""Programs of the libraries around torch, unedited, with fxstack in the place of torch's compiler.

Each program takes up to a minute, so ``python -m nox -s libraries`` runs them, and the other sessions skip them. A program is
skipped where its library is not installed. ``benchmarks/library_programs.py`` has the table of all programs beside
torch's compiler.
"""

import functools
import importlib.util
import os

import pytest
from libraries.run import LIBRARIES, run

pytestmark = pytest.mark.skipif(
    os.environ.get("FXSTACK_LIBRARIES") != "1",
    reason="python -m nox -s libraries runs the programs of libraries",
)


@functools.cache
def finished(program, system):
    if importlib.util.find_spec(LIBRARIES[program]) is None:
        pytest.skip(f"{LIBRARIES[program]} is not installed")
    return run(program, system)


KNOWN = {
    "kornia_augmentation": "ColorJitter loops over a random order and breaks in it: each order is compiled anew"
}
"""Programs that fail, with the reason."""


WHOLE = {
    "func_ensemble",
    "tensordict_policy",
    "transformers_generate",
    "transformers_mamba",
    "transformers_static_cache",
}
"""Programs in which no graph breaks."""


def marked(program):
    reason = KNOWN.get(program)
    return pytest.param(
        program, marks=[] if reason is None else pytest.mark.xfail(reason=reason, strict=True)
    )


@pytest.mark.parametrize("program", [marked(name) for name in LIBRARIES])
def test_a_program_of_the_library(program):
    compiled = finished(program, "fxstack")
    assert compiled["graphs"] > 0
    assert compiled["failures"] == [], "defects of fxstack, for which ATen runs"
    assert program not in WHOLE or compiled["reasons"] == []
    assert compiled["messages"] == [], "warnings of fxstack, and lines that mention it"
    assert compiled["losses"] == pytest.approx(finished(program, "eager")["losses"], rel=1e-4, abs=1e-6)
