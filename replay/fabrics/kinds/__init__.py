"""Kinds of fabrics that a spec string makes."""
