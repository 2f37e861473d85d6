"""`torch.compile` by weft: operators of an FX graph in groups, each one kernel of loops; the rest is left to PyTorch."""
