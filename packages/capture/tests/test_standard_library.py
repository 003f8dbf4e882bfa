"""What is the standard library's: its own files, and no packages that are installed below it."""

import json
import os
import sysconfig

import numpy as np
import pytest
import torch

from fxstack_capture.standard_library import is_of_standard_library

BELOW = sysconfig.get_path("stdlib")


@pytest.mark.parametrize("file", [json.__file__, os.__file__])
def test_its_own_files(file):
    assert is_of_standard_library(file)


@pytest.mark.parametrize(
    "file",
    [
        torch.__file__,
        np.__file__,
        f"{BELOW}/site-packages/shown/module.py",
        f"{BELOW}/dist-packages/shown.py",
        __file__,
    ],
)
def test_installed_packages(file):
    assert not is_of_standard_library(file)
