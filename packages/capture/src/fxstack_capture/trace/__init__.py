"""One attempt to trace one frame.

Capture executes a frame a second time, on proxies of the program's objects: real Python objects, run by the bytecode
interpreter of this package and, for all that is not bytecode, by CPython itself. See docs/architecture.md.
``state`` holds the record of the attempt, ``seams`` the protocols through which its parts call each other, and
``records`` what they hand over. This folder imports ``guards``, ``shapes``, ``options`` and ``sources``.
Begin with ``state``.
"""
