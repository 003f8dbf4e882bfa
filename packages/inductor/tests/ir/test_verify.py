"""The verifier names the value and the rule; the printer shows the kernel."""

import dataclasses

import pytest
import torch
from inductor_checks import check, kernels

import fxstack_inductor as fi
from fxstack_inductor.ir.expr import loop_var
from fxstack_inductor.ir.kernel import Load, Reduce, Store
from fxstack_inductor.ir.printer import show_kernel
from fxstack_inductor.ir.verify import problems, verify


@pytest.fixture(scope="module")
def kernel():
    (made,) = kernels(check(lambda x: x.softmax(-1), torch.randn(4, 9)))
    return made


def test_built_kernels_are_well_formed(kernel):
    assert list(problems(kernel)) == []


def broken(kernel, position, value):
    values = list(kernel.values)
    values[position] = value
    return dataclasses.replace(kernel, values=tuple(values))


def test_forward_reference(kernel):
    bad = broken(kernel, 1, Reduce("sum", (5,), torch.float32))
    with pytest.raises(fi.VerificationError, match="after a pass: v1 uses a value that comes after it"):
        verify(bad, "a pass")


def test_unbound_loop_variable(kernel):
    bad = broken(kernel, 0, Load(kernel.buffers[0].name, loop_var("q", 9), torch.float32))
    with pytest.raises(fi.VerificationError, match="v0 uses the loop variable q"):
        verify(bad, "a pass")


def test_unknown_buffer_and_reduction(kernel):
    assert "no buffer" in next(
        problems(dataclasses.replace(kernel, stores=(Store("z", kernel.stores[0].index, 0),)))
    )
    assert any(
        "unknown reduction" in p for p in problems(broken(kernel, 1, Reduce("median", (0,), torch.float32)))
    )


def test_reduction_without_loops(kernel):
    assert any("no inner loops" in p for p in problems(dataclasses.replace(kernel, inner=())))


def test_text(kernel):
    text = show_kernel(kernel)
    assert text.startswith("# _softmax\nkernel kernel_0(")
    assert "for p0 in 4:" in text
    assert "over r0 in 9:" in text
    assert "reduce.max(v0): float32" in text
