"""torch.fx.passes: what is computed over a graph: shapes."""
