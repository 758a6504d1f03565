"""Stationary kernels with derivatives, and functions drawn from their Gaussian-process priors."""

from swarmbo.kernels.spectral import (
    FourierDraw as FourierDraw,
    draw as draw,
    spectral_frequencies as spectral_frequencies,
)
from swarmbo.kernels.stationary import (
    KERNEL_NAMES as KERNEL_NAMES,
    KernelName as KernelName,
    correlation as correlation,
    correlation_and_slope as correlation_and_slope,
    correlation_slope as correlation_slope,
    kernel_matrix as kernel_matrix,
    kernel_matrix_gradient as kernel_matrix_gradient,
    kernel_matrix_gradient_lengthscales as kernel_matrix_gradient_lengthscales,
    scaled_distance as scaled_distance,
)
