"""The targets, from a graph to a callable: C on CPU and Triton on CUDA.

``target`` is the interface, ``all_targets`` the list. The folder of a target has the modules ``lower`` (generated text, on
any machine), ``artifact`` (the result as a record) and ``load`` (a callable of this process). Modules here may import
every other folder of the package except ``freezing`` and ``repro``. Begin with ``target``.
"""
