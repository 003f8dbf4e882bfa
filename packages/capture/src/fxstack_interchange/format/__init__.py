"""The file format: a stage graph as one archive, and back.

``document`` writes and reads the graph node by node, ``arguments``, ``values``, ``targets`` and ``constants``
its parts, ``container`` the archive. Loading never evaluates text of the file. Begin with ``files``.
"""
