"""`python -m demo`: a long session in a small window, on real input, drawn live and checked at the end."""
