"""The file format: it writes a stage graph as one archive and reads it back.

``document`` writes and reads the graph node by node. ``arguments``, ``values``, ``targets`` and ``constants``
write and read the parts of a node. ``container`` is the archive. Loading never evaluates text from the file.
``files`` above this folder saves and loads. Begin with ``document``.
"""
