"""dali-pipelines run: iterate an archive, and report how fast it goes and why."""
