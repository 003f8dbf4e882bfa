"""Decide which frames are compiled and which run in plain Python.

``policy`` decides by the file of a function, ``disabling`` by marks. The other modules detect programs that
replace functions of the compiler's dependencies. Begin with ``policy``.
"""
