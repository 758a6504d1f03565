"""Exact inference with Gaussian processes."""
