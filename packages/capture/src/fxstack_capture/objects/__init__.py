"""The object model: proxies of the program's objects.

Everything that a traced frame reads from outside enters here: ``wrapping`` makes the proxy and its guards,
``registry`` pairs it with the original, ``object_model`` implements ``trace.state.Objects``. ``kinds`` has a
module for each kind of object, ``protocols`` follows CPython's attribute protocols. Begin with
``object_model``.
"""
