"""Simulated users, scores and the demo: the evidence behind every claim that the weights improve."""
