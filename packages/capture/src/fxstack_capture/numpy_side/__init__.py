"""NumPy arrays in the trace: proxies that look like arrays to the program and hold tensors of the graph.

``array`` has the proxy of an array. ``scalar`` has the proxy of a NumPy scalar. ``functions`` pairs NumPy's
functions with functions of ``torch._numpy``. ``torch_side.arrays`` runs the calls. Begin with ``array``.
"""
