"""Recording: the trace trie, storages, step boundaries. Data flows meta -> storage -> state -> recorder -> evaluate."""
