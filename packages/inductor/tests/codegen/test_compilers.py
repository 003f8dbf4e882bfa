"""Every kind of C kernel has eager's values with each C compiler that is installed."""

import dataclasses
import shutil

import pytest
import torch
from c_kernels import PROGRAMS
from inductor_checks import FAST, check

of_each_compiler = pytest.mark.parametrize(
    "compiler",
    [
        pytest.param(
            name, marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"no {name} is installed")
        )
        for name in ("gcc", "clang")
    ],
)


@of_each_compiler
@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_have_eager_s_values(name, compiler):
    function, *inputs = PROGRAMS[name]
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        check(function, *inputs, options=dataclasses.replace(FAST, compiler=compiler))
    finally:
        torch.set_num_threads(before)
