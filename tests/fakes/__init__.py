"""Servers on loopback that stand for what the lab talks to, with every fault a test asks for."""
