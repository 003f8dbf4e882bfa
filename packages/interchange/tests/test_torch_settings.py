"""Settings of torch's compiler: which of them the program has changed, and what is said of those without effect."""

import warnings

import pytest
import torch._dynamo.config as dynamo

from fxstack_interchange.torch_facts import torch_settings
from fxstack_interchange.torch_facts.torch_settings import (
    NoEffect,
    Same,
    changed,
    meaning,
    options_from_environment,
    options_from_torch,
    register,
    warn_of_ignored,
)

MODULE = "torch._dynamo.config"


@pytest.fixture
def table(monkeypatch):
    monkeypatch.setattr(torch_settings, "TABLES", {})
    monkeypatch.setattr(torch_settings, "_WARNED", set())
    register(
        MODULE,
        {
            "recompile_limit": Same("limit"),
            "suppress_errors": Same("suppress", bool, "FXSTACK_TEST_VARIABLE"),
            "verbose": NoEffect("nothing is said twice"),
            "repro_level": NoEffect("there are no repros"),
            "group.*": NoEffect("the group has no meaning"),
        },
    )


def test_only_what_differs_from_the_default_is_changed():
    with dynamo.patch(recompile_limit=8, accumulated_recompile_limit=9):
        assert changed(MODULE) == {"accumulated_recompile_limit": 9}
    assert changed(MODULE) == {}


def test_a_module_that_is_not_loaded_has_no_settings():
    assert changed("torch._no_such.config") == {}


@pytest.mark.usefixtures("table")
def test_settings_become_options_by_their_rows():
    assert options_from_torch(MODULE) == {}
    with dynamo.patch(recompile_limit=3, verbose=True):
        assert options_from_torch(MODULE) == {"limit": 3}
    dynamo.recompile_limit = 5
    try:
        assert options_from_torch(MODULE) == {"limit": 5}
    finally:
        dynamo.recompile_limit = 8


@pytest.mark.usefixtures("table")
def test_an_alias_sets_what_it_stands_for():
    with dynamo.patch(cache_size_limit=4):
        assert options_from_torch(MODULE) == {"limit": 4}


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(("value", "expected"), [("1", {"suppress": True}), ("0", {}), ("", {})])
def test_variables_of_the_environment_set_options(monkeypatch, value, expected):
    monkeypatch.setenv("FXSTACK_TEST_VARIABLE", value)
    assert options_from_environment(MODULE) == expected


@pytest.mark.usefixtures("table")
def test_a_row_may_stand_for_a_group():
    assert meaning(MODULE, "group.one.two").because == "the group has no meaning"
    assert meaning(MODULE, "recompile_limit").option == "limit"
    assert meaning(MODULE, "unknown") is None


@pytest.mark.usefixtures("table")
def test_a_setting_without_effect_is_reported_once_at_the_program():
    code = test_a_setting_without_effect_is_reported_once_at_the_program.__code__
    with dynamo.patch(verbose=True, recompile_limit=3), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_ignored(code)
        warn_of_ignored(code)
    (said,) = caught
    assert str(said.message) == (
        "torch._dynamo.config.verbose = True has no effect in fxstack: nothing is said twice."
    )
    assert (said.filename, said.lineno) == (code.co_filename, code.co_firstlineno)
    assert said.category is torch_settings.SettingWarning
