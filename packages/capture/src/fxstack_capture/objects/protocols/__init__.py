"""CPython's attribute protocols on objects of a trace.

``loads`` and ``stores`` handle attributes of instances. ``loaders`` handles attributes of classes, modules
and functions. ``descriptors`` binds class attributes to instances. ``trace.late_guards.class_reads`` looks
names up along the MRO and guards the result. ``abstract_classes`` guards answers of ``issubclass``. Begin
with ``loads``.
"""
