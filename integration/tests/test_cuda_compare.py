"""The benchmark that compares CUDA kernels without a GPU: bytes are those computed by hand, and predicted times are sound."""

import dataclasses
import functools
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

import cuda_measured
import cuda_predict
from cuda_predict import H100, Constants, h200, seconds
from cuda_work import Work

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

KERNELS = (
    "copy", "add", "bias", "sum_rows", "sum_columns", "softmax", "transpose_add", "gather", "layer_norm", "product", "uneven",
    "choice", "choice, sampled", "copy, sampled", "softmax, sampled", "bias, sampled",
)  # fmt: skip


@functools.cache
def checked():
    """The lines of ``cuda_check.py`` by kernel. Tests have Triton interpret; the script must compile."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(BENCHMARKS / "cuda_check.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    rows = [line.split(" | ") for line in done.stdout.splitlines()]
    return {row[0].strip("| "): row[1:] for row in rows}, done.stderr


@pytest.mark.parametrize("name", KERNELS)
def test_bytes_are_those_computed_by_hand(name):
    rows, errors = checked()
    assert name in rows, errors
    assert "wrong" not in rows[name][-1]


def work(**changed):
    made = Work("pointwise", "k", True, 1e9, 1e9, programs=100_000, threads=256)
    return dataclasses.replace(made, **changed)


def product(**changed):
    return work(kind="product", own=False, operations=1e13, tiles=1000.0, **changed)


@pytest.mark.parametrize(
    ("slow", "fast"),
    [
        (work(moved=2e9, touched=2e9), work()),
        (work(width=2.0), work()),
        (work(programs=4), work()),
        (work(touched=9e9), work()),
        (product(), work()),
        (product(half=False), product()),
        (dataclasses.replace(product(), tiles=4.0), product()),
    ],
    ids=["bytes", "narrow", "few programs", "read again", "operations", "float32", "few tiles"],
)
def test_takes_longer(slow, fast):
    assert seconds(slow, H100) > seconds(fast, H100)


def test_a_wider_memory_is_faster():
    assert seconds(work(), h200(H100)) < seconds(work(), H100)


def test_an_empty_kernel_takes_the_fixed_time():
    assert seconds(work(moved=0.0, touched=0.0), H100) == H100.fixed


def test_the_constants_of_a_gpu_are_found():
    true = Constants(fixed=4e-6, memory=2e12, products=4e14)
    works = [work(moved=10.0**k, touched=0.0) for k in range(3, 11)] + [product()]
    cases = [([w], seconds(w, true)) for w in works]
    found = cuda_predict.fitted(cases)
    assert max(map(abs, cuda_predict.errors(cases, found))) < 0.1
    assert abs(math.log(found.memory / true.memory)) < 0.1


def test_measured_times_are_pairs():
    tables = (cuda_measured.KERNELS, cuda_measured.PRODUCTS, cuda_measured.MODELS)
    assert all(len(times) == 2 and min(times) > 0 for table in tables for times in table.values())
