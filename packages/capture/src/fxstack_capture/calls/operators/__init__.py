"""Operators, truth and iteration on objects of a trace.

``protocol`` follows CPython's order of methods; ``tensor_methods`` and ``mixed_operands`` handle classes of
the program that meet tensors, ``numpy_scalars`` handles scalars that change from call to call. Begin with
``protocol``.
"""
