"""A compiled graph as one script that runs alone: kernels, host program, inputs, check and clock."""
