"""Processes, ranks, signals, devices and memory of a running pipeline."""
