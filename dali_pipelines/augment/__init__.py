"""Augmentations: settings that add their operators to the graph.

Random numbers are those of `dali_pipelines.graph.user_operators.chance.Chance`, never of DALI's
random operators. The effect on a sample depends only on the seed, the epoch and the row.
"""
