"""Imported where processes are forked: what numba sets up when it is first used, for 0.3 s."""

from numba.core.registry import cpu_target

cpu_target.target_context.refresh()
cpu_target.typing_context.refresh()
