"""What `tools/evaluate` measures: how well ttrace tells wrong programs from correct ones."""
