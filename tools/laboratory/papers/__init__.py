"""Claims of the papers behind `abft` and `sdc`, and what was measured of them beside tools/reproduce."""
