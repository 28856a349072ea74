"""What the collector knows about frameworks, a small file each.

An adapter has `MODULE`, the module whose presence in sys.modules means that the program uses the framework, and
`find(world_size)`, which returns the mesh's axes and this rank's coordinates as texts ("tp=2,dp=2", "tp=1,dp=0"),
or None where the framework does not know."""
