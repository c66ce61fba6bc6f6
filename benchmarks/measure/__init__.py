"""Time ways in turn, compare what they deliver, and say where the time goes."""
