"""The two intermediate representations: tensor-level nodes (``nodes``) and loop-level kernels (``kernel``)."""
