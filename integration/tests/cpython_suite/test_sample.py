"""A few of CPython's own tests, captured, have the outcome that they have in plain CPython; the rest is a sweep."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from suite import examine  # noqa: E402


@pytest.mark.parametrize("module", ["test_raise", "test_keywordonlyarg", "test_userdict"])
def test_outcomes_are_those_of_plain_python(module):
    report = examine(module)
    assert report.records
    assert [r["id"] for r in report.different] == []
    assert report.trouble == []
    assert [r["defects"] for r in report.defects] == []


def test_most_methods_are_one_graph():
    report = examine("test_keywordonlyarg")
    assert len(report.whole) > len(report.records) / 2
