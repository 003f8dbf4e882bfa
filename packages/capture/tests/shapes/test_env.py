"""Shape environments go with the programs that they were made for."""

import gc

import torch

import fxstack_capture
from fxstack_capture.shapes.env import CaptureShapeEnv


def alive():
    gc.collect()
    return sum(type(o) is CaptureShapeEnv for o in gc.get_objects())


def compile_dynamic():
    compiled = fxstack_capture.optimize()(lambda x: x * x.size(0) if x.size(0) > 1 else x)
    for size in (3, 4, 5):
        compiled(torch.ones(size))


def test_environments_do_not_pile_up():
    for _ in range(45):
        compile_dynamic()
    before = alive()
    for _ in range(12):
        compile_dynamic()
    # One of torch's caches is bounded by a number of answers (256), so that some stay.
    assert alive() <= before + 5
