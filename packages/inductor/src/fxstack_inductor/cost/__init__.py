"""What a GPU would take for a schedule, predicted on any machine.

``devices`` describes GPUs, ``model`` predicts kernels from bytes, operations and launches, ``products``
predicts matrix products. The folder imports ``schedule`` and ``codegen``. Begin with ``model``.
"""
