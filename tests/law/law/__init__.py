"""The law `ls1` in Python, written from docs/numerics.md and its chapters alone."""
