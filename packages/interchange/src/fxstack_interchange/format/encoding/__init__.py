"""Stage graphs as archives.

``document`` writes and reads the graph node by node. ``arguments``, ``values``, ``targets``, ``constants`` and
``nodemeta`` write and read the parts of a node. ``bare`` writes a graph without metadata. ``container`` is the
archive, ``schema`` its structure. Loading never evaluates text from the file. Begin with ``document``.
"""
