"""Stationary kernels with derivatives, and functions drawn from their Gaussian-process priors."""

from swarmbo.kernels.registry import (
    KERNEL_NAMES as KERNEL_NAMES,
    KernelName as KernelName,
    KernelSettings as KernelSettings,
    kernel_names as kernel_names,
    load_kernels as load_kernels,
    named_kernels as named_kernels,
    register_kernel as register_kernel,
    require_kernel as require_kernel,
    unloaded_kernels as unloaded_kernels,
)
from swarmbo.kernels.stationary import (
    Covariance as Covariance,
    FourierDraw as FourierDraw,
    correlation as correlation,
    correlation_and_slope as correlation_and_slope,
    draw as draw,
    kernel_matrix as kernel_matrix,
    spectral_frequencies as spectral_frequencies,
)
