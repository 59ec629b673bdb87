"""Logs of jobs beside a capture: which process and rank owns each queue pair."""
