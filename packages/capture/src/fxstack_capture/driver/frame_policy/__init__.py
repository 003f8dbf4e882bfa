"""Which frames are compiled, and which run in plain Python.

``policy`` decides by the file of a function; ``disabling`` by marks; the other modules recognise programs
that replace functions which the compiler itself needs. Begin with ``policy``.
"""
