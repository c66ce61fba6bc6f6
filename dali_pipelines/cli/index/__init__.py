"""dali-pipelines index: scan an archive into an Index."""
