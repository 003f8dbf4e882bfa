"""The endings of replacements that do not simply return.

``breaking`` runs the operation that broke the graph and continues after it. ``levels`` computes the frames
around a graph break. ``raising`` passes an exception on. ``fallback`` runs the frame in plain Python.
``restore`` restores torch's state. Begin with ``breaking``.
"""
