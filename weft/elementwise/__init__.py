"""Scalar functions as operators on tensors."""
