"""Several processes: stores, groups, collectives, launching, training."""
