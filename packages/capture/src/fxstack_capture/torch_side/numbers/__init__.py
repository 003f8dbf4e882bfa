"""Numbers in graphs: symbolic sizes, numbers in tensors, input numbers.

``symbols`` makes graph nodes of symbolic numbers. ``input_numbers`` makes graph inputs of numbers.
``number_tensors`` and ``counters`` convert numbers between tensors and Python. Begin with ``symbols``.
"""
