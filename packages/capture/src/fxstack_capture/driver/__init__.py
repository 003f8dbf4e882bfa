"""Turn a frame without a valid entry into an entry.

``compiler`` is the callback of the frame hook. ``attempts`` traces a frame to its end or to a graph break.
``replacement`` makes guards and code from the trace. ``backend`` calls the backend. ``code_history`` keeps
the history of each code object. ``frame_policy`` decides which frames run in plain Python. ``reports``
informs users. The folder imports every other folder of the package. Begin with ``compiler``.
"""
