"""The attempts to trace one frame: how each attempt ends, and the change that the next attempt makes.

``attempt`` runs one trace. ``outcomes`` describes the end of an attempt. ``steps`` has the table from an outcome to
the next attempt. Begin with ``steps``.
"""
