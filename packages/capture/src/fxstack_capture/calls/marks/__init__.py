"""What programs say about their own callables.

``registered`` finds rules that programs add, by identity; ``marked`` follows the marks of ``torch.compiler`` and of this
package; ``nonstrict`` records functions as the operators that they come to. The folder imports ``calls.table`` and
``trace``. Begin with ``registered``.
"""
