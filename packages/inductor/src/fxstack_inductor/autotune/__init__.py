"""Choose between kernels of a template and the library's call, by prediction or by measurement on the device.

``candidates`` is the interface of a call that can become a kernel, ``tune`` schedules a graph by choices
and measures alternatives, ``device`` times them, ``choices`` stores the results. Modules here import
``codegen.triton``, ``tiling``, ``cost.devices``, ``runtime``, ``schedule`` and ``ir``. Begin with
``tune.tune_plan``.
"""
