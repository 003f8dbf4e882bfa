"""Calls of torch that are more than one node of the graph.

``table`` maps functions to rules, ``leaves`` says which callables are recorded without being interpreted,
``attributes`` follows the attribute protocol of tensors. Begin with ``table``.
"""
