"""What eager's CPU kernels do where torch's fake kernels say otherwise.

Dtypes that are refused or returned, layouts of results, undefined results, operators that raise for their
data, operators with effects. Tables with the functions that ask them; tests compare each with eager. Begin
with ``dtypes``.
"""
