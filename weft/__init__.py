"""weft: loops in Python to CUDA kernels for PyTorch, with proof of which may run in parallel."""
