"""ashlar - device memory, weight arenas and recurrent layers; ashlar.torch has what PyTorch uses."""
