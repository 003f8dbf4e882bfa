"""Loops that GCC must make vectors of, by its own report: values from memory of one and two bytes beside functions."""

import platform

import pytest
import torch
from inductor_checks import FAST, check
from vector_report import vector_lines

from fxstack_inductor.runtime.toolchain import _run, find_toolchain

F = torch.nn.functional
X, MASK = torch.randn(16, 192), torch.rand(16, 192) > 0.3
PROGRAMS = {
    "mask times exp": lambda x, m: x.exp() * m,
    "dropout of gelu": lambda x, m: F.gelu(x) * (m.float() / 0.9),
    "columns": lambda x, m: (F.gelu(x) * m).sum(0),
    "rows": lambda x, m: (x.exp() * m).sum(1),
    "masked softmax": lambda x, m: x.masked_fill(m, float("-inf")).softmax(-1),
    "mean of masks": lambda x, m: m.float().mean(1) + x.sum(1),
    "double": lambda x, m: x.double().sqrt() * m,
    "losses": lambda x, m: F.binary_cross_entropy_with_logits(x, m.float(), reduction="none").sum(0),
    "bounds of bounds": lambda x, m: (F.hardsigmoid(x), F.hardswish(x), F.relu6(x).clamp(1, 2)),
    "float16": lambda x, m: (x.half() * m).exp(),
    "float16 rows": lambda x, m: x.half().softmax(1),
    "extremes beside exponentials": lambda x, m: (
        x.gather(1, x.argmax(1, keepdim=True)) - x.logsumexp(1, True)
    ),
    "places of short rows": lambda x, m: (
        x.view(-1, 12).gather(1, x.view(-1, 12).argmax(1, True)) + x.view(-1, 12).abs()
    ),
    "places across rows": lambda x, m: x.sqrt().gather(0, x.abs().argmax(0, True)) + x.exp(),
    "functions beside an index": lambda x, m: x[:, torch.arange(191, -1, -1)].exp().sum(1),
    "backward with gaps": lambda x, m: (x[:, ::2].flip(-1).exp(), (x[:, ::3].flip(-1) * x[:, :64]).sum(1)),
    "many functions of short rows": lambda x, m: (
        x.view(256, 12).tanh().sigmoid() + x.view(256, 12).erf()
    ).softmax(-1),
    "booleans of rows": lambda x, m: ((x > 0).any(1), (m | (x > 1)).all(1), m.amax(1), x.sum(1)),
    "booleans of odd rows": lambda x, m: ((x > 0)[:, 1:].any(1), m[:, 1:].amin(1), x[:, 1:].amax(1)),
    "booleans of columns": lambda x, m: ((x > 0).any(0), m.all(0), x.sum(0)),
    "sine and cosine": lambda x, m: (x.sin(), x.cos(), x.double().sin() + x.double().cos()),
    "bfloat16 rows": lambda x, m: (x.bfloat16() * m).exp().sum(1),
}


def scalar_loops(text, folder):
    """The loops under ``#pragma omp simd`` in kernels of which the compiler made no vectors."""
    found = vector_lines(text, "gcc", folder)
    lines = text.splitlines()
    first = next(k for k, line in enumerate(lines) if "kernel_0" in line)
    loops = [k for k, line in enumerate(lines) if k > first and "#pragma omp simd" in line]
    # A loop is reported where it begins or where its body does.
    return [lines[k + 1] for k in loops if not found & set(range(k + 1, k + 5))]


def calls(text, name, folder):
    """How often code without vectors calls the C function ``name``."""
    toolchain = find_toolchain(FAST)
    (folder / "kernels.c").write_text(text)
    flags = [f for f in toolchain.flags if f not in {"-shared", "-fopenmp-simd"} and f[:2] != "-O"]
    command = [toolchain.path, "-O3", *flags, "-fno-tree-vectorize", "-S"]
    done = _run([*command, str(folder / "kernels.c"), "-o", str(folder / "kernels.s")])
    assert done.returncode == 0, done.stderr
    return (folder / "kernels.s").read_text().count(f"\t{name}@PLT")


of_gcc = pytest.mark.skipif(
    platform.machine() != "x86_64" or "gcc" not in find_toolchain(FAST).path,
    reason="reads what GCC makes for this processor",
)


@of_gcc
def test_functions_are_called_once_for_an_element(tmp_path):
    compiled = check(lambda x: F.softplus(x), X.bfloat16())
    assert calls(compiled.lowered.c, "log1pf", tmp_path) == 1


@of_gcc
@pytest.mark.parametrize("name", PROGRAMS)
def test_loops_over_narrow_elements_are_vectors(name, tmp_path):
    compiled = check(PROGRAMS[name], X, MASK)
    assert not scalar_loops(compiled.lowered.c, tmp_path)


def test_every_half_is_read_as_eager_reads_it():
    halves = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.float16)
    compiled = check(lambda x: x.float(), halves)
    assert torch.equal(compiled(halves)[0].nan_to_num(7), halves.float().nan_to_num(7))


def test_floats_between_halves_are_rounded_as_eager_rounds_them():
    halves = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.float16)
    bits = halves.float().view(torch.int32).long()
    between = (bits[:-1] + bits[1:]) // 2
    near = torch.cat([at + k for at in (bits, between) for k in range(-2, 3)])
    x = torch.cat([near, torch.randint(-(2**31), 2**31, (100_000,))]).int().view(torch.float32)
    compiled = check(lambda x: x.half(), x)
    assert torch.equal(compiled(x)[0].view(torch.int16), x.half().view(torch.int16))


def test_exponentials_that_come_to_zero_are_exact():
    at = torch.tensor(-103.972076).view(torch.int32)
    near = (at + torch.arange(-40, 40, dtype=torch.int32)).view(torch.float32)
    compiled = check(lambda x: x.exp(), near)
    assert torch.equal(compiled(near)[0], near.double().exp().float())
