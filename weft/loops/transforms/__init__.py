"""Transforms of a function by hand: each gives the function after it and, where it would change results, why."""
