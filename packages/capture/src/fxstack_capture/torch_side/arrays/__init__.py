"""NumPy arrays over tensors of the graph: their calls, and the conversions between tensors and arrays.

``array_tracer`` runs the calls and compares the results with NumPy's results (``dry_run``). ``tensor_arrays``
converts between tensors and arrays. ``numpy_side`` has the proxies. Begin with ``array_tracer``.
"""
