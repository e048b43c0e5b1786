"""Running: buffers, threads, native code and its cache. Knows nothing of graphs."""
