"""What the hosts wanted to send, from captures or patterns."""
