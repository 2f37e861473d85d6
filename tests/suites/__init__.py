"""Suites of loops by which the analysis is judged, and an oracle that tells what each loop is by running it."""
