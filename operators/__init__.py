"""One step of the stream a file; DoFns are thin shells over pure functions."""
