"""ashlar - device memory, weight arenas, recurrent layers; ashlar.torch has what PyTorch uses."""
