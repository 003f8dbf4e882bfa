"""From tensor-level IR to an ordered list of kernels and calls.

``plan`` is the result and the list of passes; ``fusion`` groups tensors that share a loop nest; ``build``
writes a group as one kernel; ``loops``, ``borders`` and ``split`` transform kernels; ``memory`` places
buffers. The folder imports ``lower.program`` and ``ir``. Begin with ``plan``.
"""
