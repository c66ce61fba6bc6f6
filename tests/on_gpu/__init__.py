"""What runs on a machine with GPUs: stages, each in a process, and one report of them all."""
