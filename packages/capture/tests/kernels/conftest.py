"""Makes the kernels importable, and Triton run its interpreter: there is no GPU where tests run."""

import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
sys.path.insert(0, str(Path(__file__).parent))
