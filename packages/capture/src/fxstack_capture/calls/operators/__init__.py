"""Operators, truth and iteration on objects of a trace.

``protocol`` runs an operator. ``tensor_methods`` and ``plain_objects`` handle operators between tensors and
objects of the program's classes. ``numpy_scalars`` handles scalars that change from call to call.
``fxstack_capture.operator_protocol`` has CPython's order of methods. Begin with ``protocol``.
"""
