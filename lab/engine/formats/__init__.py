"""Formats of trajectories that other programs write and read."""
