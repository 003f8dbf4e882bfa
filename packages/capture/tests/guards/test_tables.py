"""Every class of source has its row in each table."""

import inspect

import pytest

from fxstack_capture import sources
from fxstack_capture.emit import loads
from fxstack_capture.guards import accesses

CLASSES = [
    cls for _, cls in inspect.getmembers(sources, inspect.isclass) if cls.__module__ == sources.__name__
]
SOURCES = [
    cls for cls in CLASSES if issubclass(cls, sources.Source) and cls not in (sources.Source, sources.Step)
]
NOT_GUARDED = {sources.Drawn}  # made by the frame itself, before everything else
OF_TWO_SOURCES = {sources.ItemAt}  # read and lowered by name: its second source has no row of its own


@pytest.mark.parametrize("cls", SOURCES)
def test_sources_are_read(cls):
    table = accesses.STEPS if issubclass(cls, sources.Step) else accesses.ROOTS
    assert cls in table or cls in NOT_GUARDED | OF_TWO_SOURCES


@pytest.mark.parametrize("cls", SOURCES)
def test_sources_are_loaded(cls):
    assert cls in loads._LOADERS or cls in NOT_GUARDED
