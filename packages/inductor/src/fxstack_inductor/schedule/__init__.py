"""From tensor-level IR to an ordered list of kernels and calls."""
