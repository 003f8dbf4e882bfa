"""The host program: the function around the kernels that allocates, launches, calls ATen, frees and returns.

``build`` makes the program as ``records`` from the schedule. ``python_host`` and, for GPUs, ``triton_host``
print the records as Python. ``native`` and ``native_device`` print them as C, which calls back into Python
for rare cases; ``native_launches`` makes loops of equal launches, and ``native_calls`` lists the ATen calls that
C makes through torch's C shim. ``names`` has the identifiers, ``program`` the result. Modules here import ``ir``,
``lower``, ``schedule``, ``codegen`` and ``runtime``. Begin with ``records``.
"""
