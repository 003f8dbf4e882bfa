"""The two targets, from a lowered graph to a callable: C on CPU and Triton on CUDA.

``c_target`` and ``triton_target`` lower, schedule and generate code; both need no compiler or GPU.
``c_artifact`` and ``triton_load`` link the generated code into a running process. Modules here may import every
other folder of the package except ``freezing`` and ``repro``. Begin with ``c_target``.
"""
