"""Tables and plots of what was timed."""
