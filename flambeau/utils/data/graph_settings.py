"""torch.utils.data.graph_settings: what is applied to a whole pipeline of data pipes."""

from flambeau.utils.data.datapipes.datapipe import apply_random_seed, apply_sharding, apply_shuffle_settings

__all__ = ["apply_random_seed", "apply_sharding", "apply_shuffle_settings"]
