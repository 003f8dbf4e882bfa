"""Numbers in graphs: symbolic sizes, numbers in tensors, numbers from outside.

``symbols`` makes graph nodes of symbolic numbers, ``input_numbers`` makes inputs of numbers,
``number_tensors`` and ``counters`` move numbers between tensors and Python. Begin with ``symbols``.
"""
