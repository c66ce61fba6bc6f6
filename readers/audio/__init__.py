"""Recordings: WAV and AIFF by byte ranges, FLAC, OGG, MP3 and others through libsndfile."""
