"""The offered traffic of hosts, from captures or patterns."""
