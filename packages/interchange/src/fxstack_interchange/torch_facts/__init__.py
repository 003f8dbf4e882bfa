"""Facts about torch: eager kernels where torch's fake kernels differ, settings and errors of torch's compiler.

The tables of eager's kernels cover dtypes that kernels refuse or return, layouts of results, undefined results,
operators that raise depending on data, and operators with effects. Each table comes with the functions that query
it. Tests compare each table with eager. Begin with ``dtypes``.
"""
