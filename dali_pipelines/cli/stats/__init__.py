"""The command ``dali-pipelines stats``."""
