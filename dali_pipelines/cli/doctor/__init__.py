"""dali-pipelines doctor: check whether this machine is fit for a run."""
