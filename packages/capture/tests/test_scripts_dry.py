"""Every sweep and benchmark of the package runs, in its dry mode of seconds."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "testing"))

import dry_runs  # noqa: E402


@pytest.mark.parametrize("script", dry_runs.scripts(Path(__file__).parents[1]), ids=lambda s: s.name)
def test_runs(script):
    dry_runs.check(script)
