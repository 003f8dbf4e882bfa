"""The target C: generated C kernels and host programs for CPUs.

``lower`` makes the text of a graph, ``artifact`` is the stored form of the text and its objects, ``load`` compiles and
links the form. ``target`` is the class that the rest of the package uses; ``profile`` times the steps of a graph.
Modules here import the stages of the package and ``targets.target``. Begin with ``lower``.
"""
