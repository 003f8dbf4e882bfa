"""Choices by measurement on the device that will run the kernels.

``choices`` lists the candidates (tile sizes, or the library's matrix product), ``search`` and ``tune`` time
them, ``device`` gives the clock. The folder imports ``cost`` and ``runtime``. Begin with ``tune``.
"""
