"""What is left of differences in strides and sharing, with the reason (docs/differences.md, "Strides and sharing")."""

KNOWN_LAYOUTS: dict[str, str] = {  # operators of the database
    "nn.functional.dropout3d": "with p = 0 the tensor itself",
    "nn.functional.pixel_unshuffle": "of an image without pixels: row-major",
}
IDENTITIES_KNOWN: dict[object, str] = {  # by name, or (name, order of the input)
    "trapezoid": "another formula: a dim of size 1 may have another stride",
    "from numpy": "strides of an empty tensor's array",
    "batch_norm": "of an empty batch",
}
