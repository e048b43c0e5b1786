"""torch.backends.xeon: a launcher that binds processes to cores. flambeau's team of threads keeps to the process's own affinity."""
