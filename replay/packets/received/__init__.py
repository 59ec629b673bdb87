"""Packets as their receivers saw them."""
