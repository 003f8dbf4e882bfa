"""Views and in-place operators whose semantics torch's functionalisation does not keep.

``inplace`` runs an in-place operator as eager does, with the rules for shared elements (``overlap``), layouts
with gaps (``memory_layout``) and views that have no inverse (``inverses``).
``differentiable_bases`` handles inputs that are views of one tensor. Begin with ``inplace``.
"""
