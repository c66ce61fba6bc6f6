"""dali-pipelines show: draw contact sheets."""
