"""Makes Triton run its interpreter, whichever test imports it first: there is no GPU where tests run."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
