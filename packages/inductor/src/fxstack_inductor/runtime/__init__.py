"""What generated code needs to exist and run.

``toolchain`` finds the C compiler, ``cache`` keeps binaries by content, ``loader`` and ``triton_runtime``
load them, ``arena`` gives memory for intermediate tensors, ``cuda_driver`` and ``cuda_graphs`` launch. Begin
with ``cache``.
"""
