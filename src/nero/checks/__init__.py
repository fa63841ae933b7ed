"""Mistakes that users make, and the messages that say what to do; nothing here changes a parameter."""
