"""Kernels as C.

``strategy`` chooses the loop structure of a kernel; ``function``, ``points``, ``scatter``, ``tiles`` and
``reductions`` write the structures; ``sharing`` proves which loops threads may share; ``ops`` and ``text``
write scalar code. Begin with ``strategy``.
"""
