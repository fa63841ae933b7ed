"""Data sets, read from the files that their publishers ship."""
