"""Makes the helpers importable, and Triton run its interpreter: there is no GPU where tests run.

Half of the tests run with three threads, which is more than there may be cores; always the same half.
"""

import os
import sys
import zlib
from pathlib import Path

import pytest

os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
os.environ.setdefault("FXSTACK_RAISE_FAILURES", "1")  # a defect is no fallback here
sys.path.insert(0, str(Path(__file__).parent / "helpers"))


@pytest.fixture(autouse=True)
def threads(request):
    import torch  # the first process of pytest-xdist reads this file and needs no torch

    before = torch.get_num_threads()
    torch.set_num_threads(3 if zlib.crc32(request.node.nodeid.encode()) % 2 else 1)
    yield
    torch.set_num_threads(before)
