"""Facts about eager's CPU kernels that torch's fake kernels get wrong.

The tables cover dtypes that kernels refuse or return, layouts of results, undefined results, operators that
raise depending on data, and operators with effects. Each table comes with the functions that query it. Tests
compare each table with eager. Begin with ``dtypes``.
"""
