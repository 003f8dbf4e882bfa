"""Choose tile sizes of matrix products, or the library's product, by measurement on the device.

``tune`` schedules a graph by choices, ``search`` measures alternatives, ``device`` times them, ``choices``
stores the results. Modules here import ``codegen.triton``, ``cost.products``, ``runtime``, ``schedule`` and
``ir``. Begin with ``tune.tuned``.
"""
