"""Fabrics in files: YAML, containerlab, GraphML, tables of Linux routers."""
