"""Checks of what users pass, with messages that say what to do; nothing here changes a parameter."""
