"""The suites of bench.py, and what they are made of."""
