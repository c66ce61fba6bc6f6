"""Tasks of commands, run by child processes or by the workers of any Executor."""
