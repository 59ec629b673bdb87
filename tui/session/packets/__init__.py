"""The packets of selected flows."""
