"""The ``nero`` command: `inspect`, `bench`, `plan` and `theory`, and what they share."""
