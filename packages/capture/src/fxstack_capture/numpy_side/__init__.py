"""NumPy arrays in the trace: tensors of the graph that look like arrays to the program.

``types`` lists the dtypes that tensors can hold. ``array`` has the proxy of an array. ``functions`` pairs
NumPy's functions with the functions of ``torch._numpy``. ``tracer`` runs the calls and compares the results
with NumPy's results. Begin with ``tracer``.
"""
