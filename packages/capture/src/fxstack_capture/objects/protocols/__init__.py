"""CPython's attribute protocols on objects of a trace.

``loads`` and ``stores`` for instances, ``loaders`` for classes, modules and functions, ``descriptors`` for
what is found on a class, ``classes`` for lookups along the MRO with their guards. Begin with ``loads``.
"""
