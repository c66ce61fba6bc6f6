"""What runs in a reader process beside the Reader: set-up, queues, time limits, reports."""
