"""The commands: dali-pipelines run|doctor|index|verify|prep|show|bench."""
