"""The compiler, in the order of its pipeline: graph, simplify, fuse, lower, place, plan. Knows nothing of Tensor."""
