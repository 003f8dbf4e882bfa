"""Random programs of nested operators with functions inside (``torch.cond``, ``scan``, ...), compiled and in plain Python.

``writer`` draws a program, ``running`` runs it and compares, ``shrinking`` makes a program that differs smaller.
"""
