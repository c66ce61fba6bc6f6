"""The suites that `bench.py --suite` names."""
