"""The endings of replacements that do not simply return.

``breaking`` runs the operation that ended the graph and calls the resume function. ``steps`` describes the operation,
``break_frames`` the frames around it. ``raising`` runs plain Python that raises an exception. ``fallback`` runs the
frame in plain Python if the graph raises. ``graph_errors`` handles errors of graphs. Begin with ``breaking``.
"""
