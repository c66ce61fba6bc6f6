"""Augmentations: settings that add their operators to the graph.

What each does to a sample follows from the seed, the epoch and the row alone: they take random
numbers of `dali_pipelines.graph.own.chance.Chance`, and use no random operator of DALI.
"""
