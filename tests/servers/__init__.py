"""Servers that tests start: a real store of objects, and a proxy that does it harm."""
