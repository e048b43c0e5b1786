"""Recording: the trace trie, storages, step boundaries. Data flows meta -> storage -> state -> recorder -> evaluate."""


def step_boundary() -> None:
    """The end of an optimizer's step: what is pending runs now."""
    from flambeau.trace.evaluate import step_boundary as end

    end()
