"""Settings of torch's compiler: which of them the program has changed, and what is said of those without effect."""

import warnings
from dataclasses import dataclass

import pytest
import torch._dynamo.config as dynamo

from fxstack_interchange.torch_facts import torch_settings
from fxstack_interchange.torch_facts.torch_settings import (
    Setting,
    changed_settings,
    find_setting,
    options_from_environment,
    options_from_torch,
    warn_of_ignored,
    with_unset_options,
)

MODULE = "torch._dynamo.config"


@pytest.fixture
def table(monkeypatch):
    rows = {
        "recompile_limit": Setting("limit"),
        "suppress_errors": Setting("suppress", bool, "FXSTACK_TEST_VARIABLE"),
        "verbose": Setting(None, because="nothing is said twice"),
        "log_compilation_metrics": Setting(None, because="metrics are always logged", fixed=False),
        "group.*": Setting(None, because="the group has no meaning"),
    }
    monkeypatch.setattr(torch_settings, "TABLES", {MODULE: rows})
    monkeypatch.setattr(torch_settings, "_WARNED", set())


def test_only_what_differs_from_the_default_is_changed():
    with dynamo.patch(recompile_limit=8, accumulated_recompile_limit=9):
        assert changed_settings(MODULE) == {"accumulated_recompile_limit": 9}
    assert changed_settings(MODULE) == {}


def test_a_module_that_is_not_loaded_has_no_settings():
    assert changed_settings("torch._no_such.config") == {}


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
@pytest.mark.parametrize(("value", "expected"), [("1", True), ("0", False), ("", False)])
def test_variables_of_the_environment_set_options(monkeypatch, value, expected):
    monkeypatch.setenv("FXSTACK_TEST_VARIABLE", value)
    assert options_from_environment(MODULE) == {"suppress": expected}


def test_a_setting_sets_an_option_that_has_its_default_value():
    @dataclass(frozen=True)
    class Options:
        limit: int = 8
        suppress: bool = False

    values = {"limit": 3, "suppress": True, "of another record": 1}
    assert with_unset_options(Options(), Options(), values) == Options(3, True)
    assert with_unset_options(Options(limit=5), Options(), values) == Options(5, True)
    assert with_unset_options(Options(), Options(limit=7), values) == Options(8, True)


@pytest.mark.usefixtures("table")
def test_a_row_may_stand_for_a_group():
    assert find_setting(MODULE, "group.one.two").because == "the group has no meaning"
    assert find_setting(MODULE, "recompile_limit").option == "limit"
    assert find_setting(MODULE, "unknown") is None


@pytest.mark.usefixtures("table")
def test_a_setting_without_effect_is_reported_once_at_the_program():
    code = test_a_setting_without_effect_is_reported_once_at_the_program.__code__
    settings = {"verbose": True, "log_compilation_metrics": False, "recompile_limit": 3}
    with dynamo.patch(**settings), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_ignored(code)
        warn_of_ignored(code)
    (said,) = caught
    assert str(said.message) == (
        "torch._dynamo.config.verbose = True has no effect in fxstack: nothing is said twice."
    )
    assert (said.filename, said.lineno) == (code.co_filename, code.co_firstlineno)
    assert said.category is torch_settings.SettingWarning
