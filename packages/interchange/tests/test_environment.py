"""Environment variables that set options."""

import pytest

from fxstack_interchange.environment import Variable, read_environment

VARIABLES = [
    Variable("FXSTACK_TEST_SIZE", "size", int, "a number of bytes"),
    Variable("FXSTACK_TEST_NAME", "name", str),
]


@pytest.mark.filterwarnings("error")
def test_variables_that_are_set_set_their_options(monkeypatch):
    assert read_environment(VARIABLES, {}) == {}
    assert read_environment(VARIABLES, {"FXSTACK_TEST_SIZE": "3"}) == {"size": 3}
    monkeypatch.setenv("FXSTACK_TEST_NAME", "")
    assert read_environment(VARIABLES) == {"name": ""}


def test_a_text_without_meaning_is_one_warning():
    text = "FXSTACK_TEST_SIZE is 'abc', which has no meaning. The default is used: set it to a number of bytes, or unset"
    with pytest.warns(UserWarning, match=text) as caught:
        assert read_environment(VARIABLES, {"FXSTACK_TEST_SIZE": "abc", "FXSTACK_TEST_NAME": "n"}) == {
            "name": "n"
        }
    assert len(caught) == 1
