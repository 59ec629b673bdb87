"""The application: wires the session to the screens."""
