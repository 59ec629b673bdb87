"""Headers that spread packets over paths: MRC and SRv6."""
