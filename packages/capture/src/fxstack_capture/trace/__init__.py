"""State of one attempt to trace one frame.

Capture executes a frame a second time, on proxies. A proxy is a real Python object that represents an object
of the program. The interpreter of this package runs the bytecode; CPython runs everything that is not
bytecode. See docs/architecture.md.

``state`` defines the record of the attempt and the object model. ``protocols`` defines the methods that
higher folders implement. ``registry`` maps originals to proxies. ``lazy_dict`` is the proxy of a dictionary.
``late_guards`` collects the guards that depend on the whole trace. ``effects`` defines records of side
effects, and ``effect_diff`` computes them from the proxies. Begin with ``state``.
"""
