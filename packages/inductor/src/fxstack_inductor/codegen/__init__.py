"""Code generation: C kernels and the host program."""
