"""dali-pipelines warm: compile kernels once, for images of containers."""
