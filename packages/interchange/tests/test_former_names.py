"""Modules that moved can be imported by their former names for one version, with a warning."""

import subprocess
import sys
from importlib import import_module

import pytest

from fxstack_interchange.former_names import MODULES


@pytest.mark.parametrize(
    ("former", "present"), [row for row in MODULES.items() if row[0] not in ("show", "verify")]
)
def test_a_former_name_gives_the_module(former, present):
    sys.modules.pop(f"fxstack_interchange.{former}", None)
    with pytest.warns(
        DeprecationWarning, match=f"fxstack_interchange.{former} is now fxstack_interchange.{present}"
    ):
        assert import_module(f"fxstack_interchange.{former}") is import_module(
            f"fxstack_interchange.{present}"
        )


def test_functions_of_the_package_are_not_replaced_by_modules():
    program = """
from fxstack_interchange.verify import verify as former
from fxstack_interchange.errors import InterchangeError
import fxstack_interchange
assert former is fxstack_interchange.verify and callable(fxstack_interchange.show)
assert fxstack_interchange.InterchangeError is InterchangeError
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_other_names_are_not_found():
    with pytest.raises(ModuleNotFoundError):
        import_module("fxstack_interchange.nothing")
