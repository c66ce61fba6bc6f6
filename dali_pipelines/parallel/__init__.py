"""Tasks of commands, done by child processes or by the workers of any Executor."""
