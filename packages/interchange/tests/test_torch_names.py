"""Private names of torch that are gone: nothing fails until somebody calls one, and then the error says what and why."""

import pytest
import torch

from fxstack_interchange import torch_names
from fxstack_interchange.torch_names import (
    Absent,
    MissingTorchNameError,
    bind,
    entries,
    find,
    warn_of_untested,
)

NAMES = {"sums": {"torch": "_there_is_no_such_name Tensor", "torch._C": "_set_grad_enabled=setter"}}


@pytest.fixture
def bound():
    made = {}
    bind(made, NAMES)
    return made


def test_a_name_that_is_there(bound):
    assert bound["Tensor"] is torch.Tensor
    assert bound["setter"] is torch._C._set_grad_enabled
    assert [alias for _, alias, _ in entries(NAMES)] == ["there_is_no_such_name", "Tensor", "setter"]


@pytest.mark.parametrize("use", [lambda a: a(), lambda a: a.part.of_it(1), list, lambda a: a(int)])
def test_the_error_names_it_and_what_it_is_for(bound, use):
    with pytest.raises(MissingTorchNameError) as caught:
        use(bound["there_is_no_such_name"])
    text = str(caught.value)
    assert f"torch {torch.__version__} has no torch._there_is_no_such_name" in text
    assert "which fxstack needs for: sums" in text
    assert f"Install a torch from {torch_names.FIRST} to {torch_names.LAST}" in text


def test_it_can_be_subclassed_and_asked_for(bound):
    absent = bound["there_is_no_such_name"]

    class Made(absent):
        pass

    assert type(absent) is Absent
    assert not isinstance(1, (absent, Made))
    assert {absent: 1}[absent] == 1
    with pytest.raises(MissingTorchNameError):
        Made()


def test_modules_use_it_while_they_are_imported(bound):
    source = """
table = {missing.KEY: 1}
@missing.register(missing.KEY)
def function(): ...
members = [member for member in missing.members()]
"""
    space = {"missing": bound["there_is_no_such_name"], "__name__": "fxstack_made_up"}
    exec(compile(source, "<module>", "exec"), space)
    assert space["members"] == []
    with pytest.raises(MissingTorchNameError):
        space["function"]()


def test_hidden_names_are_taken_for_missing(monkeypatch):
    monkeypatch.setattr(torch_names, "HIDDEN", {"torch.Tensor"})
    made = {}
    bind(made, NAMES)
    assert type(made["Tensor"]) is Absent
    assert find("torch.nn.Module") is torch.nn.Module


@pytest.mark.parametrize("version", ["2.11.0", "2.13.0+cpu", "2.15.0+cu132", "2.15.1a0"])
def test_tested_versions_say_nothing(version, recwarn):
    warn_of_untested(version)
    assert not recwarn.list


@pytest.mark.parametrize("version", ["2.16.0", "3.0.0", "2.100.0.dev20270101"])
def test_newer_versions_are_named(version):
    with pytest.warns(UserWarning, match=r"was tested with torch 2\.11 to 2\.15, but torch .* is installed"):
        warn_of_untested(version)
