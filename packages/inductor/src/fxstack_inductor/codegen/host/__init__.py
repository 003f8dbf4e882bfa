"""The host program: allocation, launches and calls of ATen in execution order.

``python_host`` writes it as Python, ``native`` as C beside the kernels, ``triton_host`` and ``native_device``
write its parts for CUDA. The folder imports ``schedule.plan``. Begin with ``python_host``.
"""
