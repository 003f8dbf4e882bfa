"""Choose tile sizes of matrix products, or the library's product, by measurement on the device.

``templates`` finds the products that can be kernels of this package, ``tune`` schedules a graph by choices
and measures alternatives, ``device`` times them, ``choices`` stores the results. Modules here import
``codegen.triton``, ``tiling``, ``cost.products``, ``runtime``, ``schedule`` and ``ir``. Begin with
``tune.tuned``.
"""
