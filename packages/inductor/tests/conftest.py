"""Makes the helpers importable, and Triton run its interpreter: there is no GPU where tests run."""

import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
os.environ.setdefault("FXSTACK_RAISE_FAILURES", "1")  # a defect is no fallback here
sys.path.insert(0, str(Path(__file__).parent / "helpers"))
