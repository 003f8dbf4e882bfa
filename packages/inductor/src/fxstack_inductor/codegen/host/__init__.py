"""The host program: the function around the kernels that allocates, launches, calls ATen, frees and returns.

``python_host`` writes the host program as Python, ``triton_host`` does so for GPUs. ``native`` and
``native_device`` write the same program in C; its rare cases call back into Python. ``native_calls`` lists
ATen calls through torch's C shim. Modules here import ``ir``, ``lower``, ``schedule``, ``codegen`` and
``runtime``. Begin with ``python_host``.
"""
