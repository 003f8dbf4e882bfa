"""Rules of the standard library and of NumPy.

There is one module for each library module, named after its subject. Rules import ``trace``, ``objects`` and
``calls``, and never import another folder of rules. Begin with ``regular_expressions``.
"""
