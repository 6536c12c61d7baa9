"""What the model is shown: pure functions on plain values. No Django, no I/O, no clock, no randomness."""
