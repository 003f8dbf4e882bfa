"""Makes the shared model list and the examples importable, every test start from empty caches, and Triton interpret.

Half of the tests run with three threads, which is more than there may be cores; always the same half.
"""

import os
import sys
import zlib
from pathlib import Path

import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")  # there is no GPU where tests run
os.environ.setdefault("FXSTACK_RAISE_FAILURES", "1")  # a defect is no fallback here
ROOT = Path(__file__).parents[1]
for folder in ("benchmarks", "examples", "tests"):
    sys.path.insert(0, str(ROOT / folder))


@pytest.fixture(autouse=True)
def fresh(request):
    import torch

    import fxstack

    before = torch.get_num_threads()
    torch.set_num_threads(3 if zlib.crc32(request.node.nodeid.encode()) % 2 else 1)
    yield
    torch.set_num_threads(before)
    fxstack.reset()
