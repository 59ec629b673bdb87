"""The content of a session as text for people and for other programs."""
