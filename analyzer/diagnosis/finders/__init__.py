"""One file per family of findings; each looks at the whole case and yields its findings."""
