"""Self-tests of the compute kernels, each in a child process."""
