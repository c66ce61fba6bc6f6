"""Parts of the suites: comparisons with a table of their own."""
