"""NumPy arrays in the trace: tensors of the graph that look like arrays to the program.

``types`` says which dtypes have a tensor counterpart, ``array`` is what stands for an array, ``functions`` pairs
NumPy's functions with those of ``torch._numpy``, ``tracer`` carries calls out and checks them against NumPy itself.
"""
