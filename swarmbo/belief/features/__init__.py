"""Gaussian processes as linear models over random features, and ensembles of them."""
