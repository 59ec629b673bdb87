"""Frames inside mirrors, tunnels and samples."""
