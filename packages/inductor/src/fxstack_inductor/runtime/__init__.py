"""What generated code needs to exist and run: the compiler, the disk cache, the loader."""
