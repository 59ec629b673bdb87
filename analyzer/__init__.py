"""Frames in, results out: decoding, flow tracking, measures. No user interface here."""
