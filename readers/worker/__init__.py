"""Reader processes: set-up, parent watch, malloc settings, queues, time limits, reports."""
