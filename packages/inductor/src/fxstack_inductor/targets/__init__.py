"""A graph through all passes, for one target.

``c_target`` and ``triton_target`` lower, schedule and write a graph; ``c_artifact`` and ``triton_load`` make
a callable of the result, which can come from the disk. The folder imports every other folder but ``freezing``
and ``repro``. Begin with ``c_target``.
"""
