"""Transforms that the analysis makes by itself, each kept only if it frees a loop."""
