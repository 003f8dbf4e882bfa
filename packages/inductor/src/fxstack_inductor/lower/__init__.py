"""From ATen calls to tensor-level IR: one registered rule per operator or family."""
