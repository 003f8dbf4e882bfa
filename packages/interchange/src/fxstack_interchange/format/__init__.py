"""The format of stage graphs: records, invariants, text, and files.

``signature`` and ``metadata`` hold the records. ``verify`` checks invariants, ``show`` prints a graph, ``files`` saves
and loads. ``encoding`` writes and reads archives; ``expressions``, ``literals`` and ``symbols`` are values in text
form. Begin with ``signature``.
"""
