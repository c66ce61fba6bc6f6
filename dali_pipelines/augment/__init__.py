"""Augmentations: settings that add their operators to the graph.

Each draws from `dali_pipelines.graph.user_operators.chance.Chance` and never from DALI's random
operators, so its effect on a sample depends only on the seed, the epoch and the row.
"""
