"""What a session shows, in words for people and for other programs."""
