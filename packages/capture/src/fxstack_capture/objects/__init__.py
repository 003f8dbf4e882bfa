"""The object model: proxies of the program's objects.

``wrapping`` makes the proxy and the guards of each object that a traced frame reads from outside.
``object_model`` implements the abstract methods of ``trace.state.Objects``. That class holds the tables of
proxies and reads. ``kinds`` has one module for each kind of object. ``protocols`` implements CPython's
attribute protocols. Begin with ``object_model``.
"""
