"""State of one attempt to trace one frame.

Capture executes a frame a second time, on proxies. A proxy is a real Python object that represents an object
of the program. The interpreter of this package runs the bytecode; CPython runs everything that is not
bytecode. See docs/architecture.md.

``state`` defines the record of the attempt, ``seams`` and ``parts`` define the protocols through which the
parts of the trace call each other, and ``records`` defines the values that the parts exchange. This folder
imports ``guards``, ``shapes``, ``options`` and ``sources``. Begin with ``state``.
"""
