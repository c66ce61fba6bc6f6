"""dali-pipelines warm: compile kernels once, while a container image is built."""
