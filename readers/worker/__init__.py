"""Parts of a reader process: set-up, parent watch, malloc, tasks, slab, time limits, reports."""
