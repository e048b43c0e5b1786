"""After a change of settings: which plans of the tries have to be made again."""

from __future__ import annotations

from flambeau.trace.forgetting import states
from flambeau.trace.immediate import forget


def forget_plans(workers: int) -> int:
    """Drop the plans that were made for fewer than `workers` threads: when they are wanted, they are made again, from code
    that is there already. Returns how many there were. A plan that another thread is running just now runs on."""
    dropped = 0
    forget()
    for state in states():
        for alive, plan in list(state.plans.items()):
            if (plan.plan.placement if plan.variant is None else plan.variant).workers < workers:
                state.plans.pop(alive, None)
                dropped += 1
    return dropped
