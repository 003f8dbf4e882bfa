"""CPython's attribute protocols on objects of a trace.

``loads`` and ``stores`` handle attributes of instances, ``loaders`` attributes of classes, modules and
functions. ``descriptors`` binds class attributes to instances. ``classes`` looks names up along the MRO and
guards the result. Begin with ``loads``.
"""
