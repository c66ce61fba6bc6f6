"""Videos: where their packets are, by demuxing alone, and clips decoded from them by PyAV."""
