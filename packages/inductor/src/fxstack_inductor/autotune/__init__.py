"""Choices by measurement: tile sizes of matrix products, or the library's product, on the device that will run them."""
