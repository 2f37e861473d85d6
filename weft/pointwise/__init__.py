"""Pointwise operators on GPUs: how operands are iterated over, what they promote to, and what results may be written into."""
