"""Operators, truth and iteration on objects of a trace.

``protocol`` runs an operator; ``tensor_methods`` and ``plain_objects`` handle classes of the program that meet
tensors, ``numpy_scalars`` handles scalars that change from call to call. ``fxstack_capture.operator_protocol`` states
CPython's order of methods. Begin with ``protocol``.
"""
