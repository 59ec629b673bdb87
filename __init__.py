"""rocescope: what every RoCEv2 queue pair did, from packet headers."""

__version__ = "0.1.0"
